# SPDX-License-Identifier: Apache-2.0
"""What people and canaries found."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from kvflags_collector.api.schemas.fields import Id, Remark, Sign, Small, Tags
from kvflags_collector.api.schemas.signed import Change, Signed

__all__ = ["CanaryResult", "EditFeedback", "GiveFeedback"]


class GiveFeedback(Signed):
    """`POST /api/v1/flags/{key}/feedback`."""

    deployment: Id
    sign: Sign
    tags: Tags = []
    comment: Remark

    def said(self) -> dict[str, Any]:
        """As it is kept: each tag once."""
        return {"sign": self.sign, "tags": sorted(set(self.tags)), "comment": self.comment}


class EditFeedback(Change):
    """`PUT /api/v1/flags/{key}/feedback/{id}`: what is left out stays."""

    sign: Sign | None = None
    tags: Tags | None = None
    comment: Remark | None = None

    def said(self) -> dict[str, Any]:
        """What is changed, as it is kept."""
        tags = None if self.tags is None else sorted(set(self.tags))
        said = {"sign": self.sign, "tags": tags, "comment": self.comment}
        return {name: value for name, value in said.items() if value is not None}

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.said():
            raise ValueError("nothing to change: give a sign, tags or a comment")
        return self


class CanaryResult(Signed):
    """`POST /api/v1/canaries`: prompts compared and those that differ; deltas in nats."""

    deployment: Id
    generation: Id = "default"
    outcome: Literal["match", "mismatch", "undecided"]
    compared: Small
    mismatched: Small
    max_delta: Annotated[float, Field(ge=0, le=1e6)] | None = None
    tolerance: Annotated[float, Field(ge=0, le=10)]

    def found(self) -> dict[str, Any]:
        """As it is kept."""
        return self.model_dump(include={"outcome", "compared", "mismatched", "max_delta", "tolerance"})
