# SPDX-License-Identifier: Apache-2.0
"""Flags as they are created, aimed, stopped and kept in files."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from kvflags_collector.api.schemas.fields import Body, Criteria, Day, Id, Key, Label, Revision, Word
from kvflags_collector.api.schemas.signed import Change

__all__ = ["Aim", "Apply", "Create", "Extend", "FlagFile", "KillSwitch", "Target", "Undo"]


class Create(Change):
    """`POST /api/v1/flags`. Times in seconds, up to a year; `criteria` and `expires` as in a flag's file."""

    key: Key
    feature: Word
    baseline_s: Annotated[int, Field(ge=0, le=366 * 86_400)] = 7 * 86_400
    quiet_s: Annotated[int, Field(ge=0, le=366 * 86_400)] = 600
    criteria: Criteria = []
    expires: Day | None = None


class Extend(Change):
    """`PUT /api/v1/flags/{key}/expiry`. `expires`: the last day on which the flag stands; null: for good."""

    expires: Day | None


class Target(Change):
    """`PUT /api/v1/flags/{key}/target`: exactly one of percent, count and inherit."""

    percent: float | None = None
    count: Annotated[int, Field(le=1_000_000)] | None = None
    inherit: bool = False
    backend: Word | None = None


class KillSwitch(Change):
    """`PUT /api/v1/flags/{key}/kill-switch`."""

    on: bool


class Undo(Change):
    """`POST /api/v1/flags/{key}/undo`. `to`: the revision to aim as; without it, the aim before the last change."""

    to: Revision | None = None


class Aim(Body):
    """A target in a flag's file: exactly one of percent and count."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    percent: Annotated[float, Field(ge=0, le=100)] | None = None
    count: Annotated[int, Field(ge=0, le=1_000_000)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.percent is None) == (self.count is None):
            raise ValueError("a target is a percent or a count: exactly one of them")
        return self


class FlagFile(Body):
    """A flag as it is kept in a file. What is left out has its default; an unknown field is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, title="kvflags flag file")

    key: Key
    feature: Word
    target: Aim | None = None
    overrides: Annotated[dict[Label, Aim], Field(max_length=64)] = {}
    enrolment_percent: Annotated[float, Field(ge=0, le=100)] = 100
    holdback_percent: Annotated[float, Field(ge=0, le=100)] = 0
    held_back: Annotated[list[Id], Field(max_length=10_000)] = []
    labels: Annotated[dict[Label, Label], Field(max_length=64)] = {}
    vllm: Annotated[str, Field(max_length=200, examples=[">=0.30,<0.33"])] = ""
    baseline_s: Annotated[int, Field(ge=0, le=366 * 86_400)] = 7 * 86_400
    quiet_s: Annotated[int, Field(ge=0, le=366 * 86_400)] = 600
    criteria: Criteria = []
    expires: Day | None = None


class Apply(Change):
    """`PUT /api/v1/flags/{key}`. `dry_run`: say what would change, and change nothing."""

    file: FlagFile
    dry_run: bool = False
