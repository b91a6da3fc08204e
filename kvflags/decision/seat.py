# SPDX-License-Identifier: Apache-2.0
"""Where in vLLM's process tree a configuration was made: that decides whether it registers, and for whom."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from kvflags.flags import Role

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["Seat", "role_of", "seat_of"]

_ROLES = {"kv_producer": Role.PREFILL, "kv_consumer": Role.DECODE}


class Seat(StrEnum):
    """FRONT_END registers. PARENT does too, and its API servers (CHILD) take over what it was told.

    FOLLOWER holds workers of an engine whose core, and so whose layout, is on another node. A PRELOAD daemon holds
    weights for engines and has no KV cache. Neither registers.
    """

    FRONT_END = "front_end"
    PARENT = "parent"
    CHILD = "child"
    FOLLOWER = "follower"
    PRELOAD = "preload"


def seat_of(vllm_config: VllmConfig, argv: Sequence[str]) -> Seat:
    """The seat of the process that made this configuration; `argv` is that process's command line."""
    parallel = vllm_config.parallel_config
    if list(argv[1:2]) == ["preload"]:
        return Seat.PRELOAD
    # Headless nodes of data parallelism have node_rank_within_dp 0: they run engine cores of their own, which resolve
    # layouts of their own, so they must hear the pin like everybody else.
    if getattr(parallel, "node_rank_within_dp", 0) > 0:
        return Seat.FOLLOWER
    if getattr(parallel, "_api_process_count", 1) > 1:
        return Seat.PARENT if parallel._api_process_rank == -1 else Seat.CHILD
    return Seat.FRONT_END


def role_of(configured: str | None, kv_role: str | None) -> tuple[Role, str]:
    """The role, and the problem where KVFLAGS_ROLE contradicts vLLM's own configuration, which wins (empty: none)."""
    given = _ROLES.get(kv_role or "")
    if given is None:
        return Role(configured) if configured else Role.BOTH, ""
    if configured in {None, given}:
        return given, ""
    return (
        given,
        f"KVFLAGS_ROLE: {configured} contradicts kv_role={kv_role}; hint: leave it unset unless kv_role=kv_both",
    )
