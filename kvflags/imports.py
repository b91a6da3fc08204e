# SPDX-License-Identifier: Apache-2.0
"""Run a callback once a module of the host is imported, without importing it ourselves.

vLLM runs plugins in every process, also for `--help` and in helper processes, where importing what is to be patched
would cost a second for nothing. So a patch waits for its target.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

__all__ = ["when_imported"]

_Callback = Callable[[ModuleType], None]


def when_imported(name: str, callback: _Callback) -> None:
    """Call `callback(module)` now if the module is imported, else right after its import; exceptions are only logged.

    Asking twice with the same callback has no further effect.
    """
    module = sys.modules.get(name)
    # A module that is still being executed is in sys.modules too; its spec says so, and it has to be waited for.
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        _run(callback, module)
        return
    waiting = _FINDER.waiting.setdefault(name, [])
    if callback not in waiting:
        waiting.append(callback)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def _run(callback: _Callback, module: ModuleType) -> None:
    try:
        callback(module)
    except Exception:
        # The host's import must succeed whatever becomes of our patch.
        logging.getLogger("vllm.kvflags").exception("kvflags: %s could not be patched", module.__name__)


class _Finder(MetaPathFinder):
    """Finds nothing itself: it lets the others find, and puts a loader in between that tells us when it is done."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[_Callback]] = {}

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        callbacks = self.waiting.pop(fullname, None)
        if callbacks is None:
            return None
        spec = find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _Loader(spec.loader, callbacks)
        return spec


class _Loader(Loader):
    """The real loader, with the callbacks run after it."""

    def __init__(self, inner: Loader, callbacks: list[_Callback]) -> None:
        self.inner = inner
        self.callbacks = callbacks

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Give the module its own loader back first: it may read its data files or source through it.
        if module.__spec__ is not None:
            module.__spec__.loader = self.inner
        module.__loader__ = self.inner
        self.inner.exec_module(module)
        for callback in self.callbacks:
            _run(callback, module)


_FINDER = _Finder()
