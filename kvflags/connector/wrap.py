# SPDX-License-Identifier: Apache-2.0
"""The wrapper: a subclass of vLLM's connector class, made for whichever class is at hand.

A subclass and not a delegating object, because vLLM questions the class before any instance exists, and because every
method that a delegator forgets has a default in the base class and so misbehaves without a word. It has the base's
name: vLLM looks connectors up by it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kvflags.connector.guard import guarded
from kvflags.connector.requested import requested
from kvflags.decision import carry

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from kvflags.connector.host import Role, Worker
    from kvflags.connector.runtime import Runtime

__all__ = ["wrap"]

_wrapped: dict[type, type] = {}


def wrap(base: type) -> type:
    """The wrapper of a NIXL connector class; the same one each time, and of a wrapper the wrapper itself."""
    if getattr(base, "_kvflags_wraps", None) is not None:
        return base
    return _wrapped.setdefault(base, _wrapped.get(base) or _subclass(base))


def _subclass(base: type) -> type:
    class Wrapper(base):  # type: ignore[misc]
        """Asks for the decided layout, observes transfers, and is the base class in everything else."""

        _kvflags_wraps = base
        _kvflags: Runtime | None = None

        def __init__(self, vllm_config: VllmConfig, role: Role, kv_cache_config: object = None) -> None:
            super().__init__(vllm_config, role, kv_cache_config)
            if role.name == "WORKER":
                self._kvflags = _attach(self.connector_worker, vllm_config)

        @classmethod
        def get_required_kvcache_layout(cls, vllm_config: VllmConfig) -> str | None:
            layout: str | None = _requested(vllm_config) or super().get_required_kvcache_layout(vllm_config)
            return layout

        def register_kv_caches(self, kv_caches: dict[str, object]) -> None:
            super().register_kv_caches(kv_caches)
            if self._kvflags is not None:
                _start(self._kvflags, type(self), kv_caches)

        def shutdown(self) -> None:
            try:
                super().shutdown()
            finally:
                if self._kvflags is not None:
                    _close(self._kvflags)

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(Wrapper, name, getattr(base, name))
    return Wrapper


# Ours, each under a guard; what is between them is vLLM's, and is not.


@guarded(None)
def _requested(vllm_config: VllmConfig) -> str | None:
    return requested(carry.get(vllm_config), os.environ)


@guarded(None)
def _attach(worker: Worker, vllm_config: VllmConfig) -> Runtime | None:
    from kvflags.connector.runtime import Runtime  # noqa: PLC0415 (for workers only: it brings the exporter)

    return Runtime(worker, vllm_config)


@guarded(None)
def _start(runtime: Runtime, connector: type, kv_caches: dict[str, object]) -> None:
    # Asked again, here in the worker: it is the same pure function that the engine core asked.
    runtime.start(len(kv_caches), connector.get_required_kvcache_layout(runtime.vllm_config))  # type: ignore[attr-defined]


@guarded(None)
def _close(runtime: Runtime) -> None:
    runtime.close()
