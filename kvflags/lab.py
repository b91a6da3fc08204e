# SPDX-License-Identifier: Apache-2.0
"""The lab plugin: lets the CPU backend accept cross-layer layouts, for the demo and the tests only.

vLLM's CPU backend declares the default layout alone, although its kernels follow the strides (logprobs stay
bit-identical). With `KVFLAGS_LAB_CPU_LAYOUTS=1` in an engine's environment this widens the declaration; such an engine
reports the fact `lab`, and nothing else in the environment or on the collector can switch it on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from kvflags.imports import when_imported

__all__ = ["SETTING", "active", "register"]

SETTING = "KVFLAGS_LAB_CPU_LAYOUTS"
_BACKEND = "vllm.v1.attention.backends.cpu_attn"
_LAYOUT = "BHLNC"


def active(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process was asked to be a lab engine."""
    return environ.get(SETTING) == "1"


def register() -> None:
    """Entry point of `vllm.general_plugins`; runs in every process, possibly several times. Never raises."""
    if active():
        when_imported(_BACKEND, _widen)


def _widen(module: ModuleType) -> None:
    backend = module.CPUAttentionBackend
    declared = getattr(backend, "supported_kv_cache_layouts", None)
    if declared is None or getattr(declared, "_kvflags_lab", False):
        return

    def supported_kv_cache_layouts(cls: type) -> tuple[Any, ...]:  # noqa: ARG001 (vLLM calls it as a classmethod)
        layouts = tuple(declared())
        return (*layouts, type(layouts[0])[_LAYOUT])

    supported_kv_cache_layouts._kvflags_lab = True  # type: ignore[attr-defined]
    backend.supported_kv_cache_layouts = classmethod(supported_kv_cache_layouts)
    logging.getLogger("vllm.kvflags").warning(
        "kvflags: lab engine: the CPU backend accepts %s because %s=1", _LAYOUT, SETTING
    )
