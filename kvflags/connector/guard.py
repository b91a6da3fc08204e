# SPDX-License-Identifier: Apache-2.0
"""The line between us and the host: what fails in ours ends here, is counted, and is logged once for each place.

Only our own code goes under a guard. A call into the inner connector never does, so its exceptions pass unchanged.
"""

from __future__ import annotations

import functools
import logging
import os
from collections import Counter
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["STRICT", "failures", "guarded"]

STRICT = "KVFLAGS_STRICT"

_P = ParamSpec("_P")
_R = TypeVar("_R")
_F = TypeVar("_F")

_log = logging.getLogger("vllm.kvflags")
_failures: Counter[str] = Counter()


def guarded(fallback: _F) -> Callable[[Callable[_P, _R]], Callable[_P, _R | _F]]:
    """Return `fallback` where the function raises. Under KVFLAGS_STRICT=1, in our tests, it raises all the same.

    Costs 0.1 us a call; a function that is called in every step is better guarded where it does something.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R | _F]:
        @functools.wraps(function)
        def guard(*args: _P.args, **kwargs: _P.kwargs) -> _R | _F:
            try:
                return function(*args, **kwargs)
            except Exception:
                if os.environ.get(STRICT) == "1":
                    raise
                _note(f"{function.__module__}.{function.__qualname__}")
                return fallback

        return guard

    return decorate


def failures() -> dict[str, int]:
    """How often each place failed in this process: nothing, in good times."""
    return dict(_failures)


def _note(place: str) -> None:
    _failures[place] += 1
    if _failures[place] == 1:
        _log.exception("kvflags: %s failed; the engine goes on without it, and this is said once", place)
