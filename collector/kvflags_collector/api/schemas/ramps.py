# SPDX-License-Identifier: Apache-2.0
"""The steps of a rollout, and leave to take one."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kvflags_collector.api.schemas.fields import Body
from kvflags_collector.api.schemas.signed import Change

__all__ = ["Promote", "RampPlan", "RampStep"]


class RampStep(Body):
    """One step of a ramp: exactly one of percent and count; `hold_s` in seconds."""

    percent: float | None = None
    count: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    hold_s: Annotated[int, Field(ge=0, le=366 * 86_400)] = 3 * 86_400
    sample: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    approval: bool = False


class RampPlan(Change):
    """`PUT /api/v1/flags/{key}/ramp`. `steps`: empty for those that suit the fleet's size, null to take it away."""

    steps: Annotated[list[RampStep], Field(max_length=50)] | None
    hold_s: Annotated[int, Field(ge=0, le=366 * 86_400)] = 3 * 86_400


class Promote(Change):
    """`POST /api/v1/flags/{key}/promote`: the next step, or the default."""

    default: bool = False
