# SPDX-License-Identifier: Apache-2.0
"""What operators say of deployments and their generations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kvflags_collector.api.schemas.fields import Body, Id, Label, Variant, Word
from kvflags_collector.api.schemas.signed import Change

__all__ = ["Decide", "Declare", "Force", "Opt", "Reopen"]


class Opt(Change):
    """`PUT /api/v1/flags/{key}/opts`: in, out, or null to take what is dealt again."""

    deployment: Id
    opted: Literal["in", "out"] | None


class Force(Change):
    """`POST /api/v1/flags/{key}/pins`: an open generation, pinned by hand."""

    deployment: Id
    generation: Id
    variant: Variant


class Reopen(Change):
    """`POST /api/v1/flags/{key}/reopen`."""

    deployment: Id
    generation: Id


class Declare(Change):
    """`PUT /api/v1/declarations`: replaces what was stated of the deployment. `backend` waives observation."""

    deployment: Id
    isolation: Literal["recreate", "bluegreen", "router"] | None = None
    prefill: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    decode: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    labels: Annotated[dict[Label, Label], Field(max_length=64)] = {}
    backend: Word | None = None
    block_size: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class Decide(Body):
    """`POST /api/v1/flags/{key}/decide`."""

    deployment: Id
    generation: Id = "default"
