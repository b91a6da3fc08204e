# SPDX-License-Identifier: Apache-2.0
"""What engines send: they register, and then tell how they do."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from kvflags_collector.api.schemas.fields import Body, Count, Id, Line, Problems, Small, Variant, Word

__all__ = ["Dropped", "Exercised", "Facts", "HeartbeatBody", "Layout", "Local", "RegisterBody"]


class Facts(Body):
    """`kvflags.flags.Facts` on the wire; null means not known."""

    vllm: Word | None = None
    nixl: Word | None = None
    model_class: Word | None = None
    architecture: Line | None = None
    backend: Word | None = None
    block_size: Small | None = None
    kv_heads_per_rank: Small | None = None
    tp: Small | None = None
    pp: Small | None = None
    dp: Small | None = None
    dcp: Small | None = None
    kv_cache_dtype: Word | None = None
    connector: Word | None = None
    nested_in: Word | None = None
    gpu: Line | None = None
    transport: Word | None = None
    runner: Word | None = None
    isolation: Literal["recreate", "bluegreen", "router", "unknown"] | None = None
    lab: bool | None = None


class Local(Body):
    """An operator's own setting on the engine."""

    source: Word
    variant: Variant


class RegisterBody(Body):
    """`POST /api/v1/engines/register`."""

    registration_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    deployment: Id | None
    generation: Id = "default"
    role: Literal["prefill", "decode", "both"] = "both"
    features: Annotated[list[Word], Field(max_length=64)] = []
    kvflags: Word = ""
    deaths: Small = 0
    running: Variant | None = None
    local: Local | None = None
    facts: Facts = Facts()
    presented: Annotated[str, Field(max_length=8192)] | dict[str, Any] | None = None
    problems: Problems = []
    refused: Word | None = None

    def message(self) -> dict[str, Any]:
        """As the ledger takes it: facts that are not known are left out, so that defaults hold."""
        return self.model_dump() | {"facts": self.facts.model_dump(exclude_none=True)}


class Layout(Body):
    """What was asked for and what came of it."""

    requested: Word | None = None
    resolved: Word | None = None
    regions: Small | None = None
    layers: Small | None = None
    effective: bool | None = None


class Exercised(Body):
    """Transfers since the start."""

    ok: Count = 0
    errors: Count = 0


class Dropped(Body):
    """What the engine could not send, since the start."""

    spans: Count = 0
    events: Count = 0


class HeartbeatBody(Body):
    """`POST /api/v1/engines/{registration_id}/heartbeat`."""

    engine_id: Annotated[Line, Field(min_length=1, max_length=128)]
    seq: Count = 0
    clock: Annotated[datetime, Field(strict=False)] | None = None
    ranks: Small = 1
    facts: Facts = Facts()
    layout: Layout = Layout()
    exercised: Exercised = Exercised()
    dropped: Dropped = Dropped()
    problems: Problems = []

    def message(self) -> dict[str, Any]:
        """As the ledger takes it."""
        return self.model_dump() | {"facts": self.facts.model_dump(exclude_none=True)}
