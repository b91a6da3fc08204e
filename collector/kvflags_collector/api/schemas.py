# SPDX-License-Identifier: Apache-2.0
"""The shapes of requests, with their bounds. Unknown fields are ignored, so that either side may be newer."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from kvflags.inert import inert
from kvflags.settings import id_problem
from kvflags_collector.access.actor import acting
from kvflags_collector.access.scopes import Scope

__all__ = [
    "NAME",
    "Admit",
    "Aim",
    "Apply",
    "CanaryResult",
    "Change",
    "Create",
    "Decide",
    "Declare",
    "EditFeedback",
    "FlagFile",
    "Force",
    "GiveFeedback",
    "HeartbeatBody",
    "Id",
    "KillSwitch",
    "NewToken",
    "Opt",
    "Promote",
    "RampPlan",
    "RegisterBody",
    "Reopen",
    "Signed",
    "Target",
    "Undo",
]


def _identity(value: str) -> str:
    if wrong := id_problem(value):
        raise ValueError(wrong)
    return value


def _printable(value: str) -> str:
    # Reasons may have several lines; anything else that moves a terminal's cursor may not.
    if not all(character.isprintable() or character in "\n\t" for character in value):
        raise ValueError("has control characters")
    return value


def _a_day(value: str) -> str:
    try:
        date.fromisoformat(value)
    except ValueError:
        raise ValueError("is not a day of the calendar") from None
    return value


def _signature(value: Any) -> Any:  # noqa: ANN401 - whatever was sent
    if value is not None:
        return value
    if (name := acting.get()) is None:
        raise ValueError("is missing, and no token says who this is")
    return name


def _remark(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    if len(value.encode()) > _REMARK_BYTES:
        raise ValueError(f"is longer than {_REMARK_BYTES} bytes")
    return inert(value)


# Room for a stack trace, and little enough that a thousand of them are a page.
_REMARK_BYTES = 10_000

# For whoever reads the OpenAPI document; the validators know more: what Python calls printable.
_ONE_LINE: dict[str, JsonValue] = {"pattern": r"^[^\x00-\x1f\x7f]*$"}
_LINES: dict[str, JsonValue] = {"pattern": r"^[^\x00-\x08\x0b-\x1f\x7f]*$"}
NAME: dict[str, JsonValue] = {"pattern": r"^[^\x00-\x20\x7f]([^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?$"}

Id = Annotated[str, Field(max_length=253, json_schema_extra=NAME), AfterValidator(_identity)]
_Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
_Word = Annotated[str, Field(max_length=64, json_schema_extra=_ONE_LINE), AfterValidator(_printable)]
_Text = Annotated[str, Field(min_length=1, max_length=2000, json_schema_extra=_LINES), AfterValidator(_printable)]
_Line = Annotated[str, Field(max_length=200, json_schema_extra=_ONE_LINE), AfterValidator(_printable)]
_Author = Annotated[_Line, Field(min_length=1), BeforeValidator(_signature)]
# People paste logs into it: what would act on a terminal or a page is written out, not refused.
_Remark = Annotated[str, Field(max_length=_REMARK_BYTES), AfterValidator(_remark)]
_Sign = Literal["positive", "negative"]
_Tags = Annotated[list[Literal["latency", "errors", "quality", "memory", "crash"]], Field(max_length=16)]
_Count = Annotated[int, Field(ge=0, le=2**53)]
# Revisions count one by one, and their column is of 32 bits.
_Revision = Annotated[int, Field(ge=1, le=2**31 - 1)]
_Small = Annotated[int, Field(ge=0, le=1_000_000)]
_Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]{1,128}$")]
_Variant = Literal["on", "off"]
_Criteria = Annotated[list[_Text], Field(max_length=50)]
_Day = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$", examples=["2027-06-01"]), AfterValidator(_a_day)]
_Problems = Annotated[list[_Word], Field(max_length=64)]


class _Body(BaseModel):
    # Numbers in strings and strings in numbers are refused: what was stored must be what was sent.
    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


class Facts(_Body):
    """`kvflags.flags.Facts` on the wire; null means not known."""

    vllm: _Word | None = None
    nixl: _Word | None = None
    model_class: _Word | None = None
    architecture: _Line | None = None
    backend: _Word | None = None
    block_size: _Small | None = None
    kv_heads_per_rank: _Small | None = None
    tp: _Small | None = None
    pp: _Small | None = None
    dp: _Small | None = None
    dcp: _Small | None = None
    kv_cache_dtype: _Word | None = None
    connector: _Word | None = None
    nested_in: _Word | None = None
    gpu: _Line | None = None
    transport: _Word | None = None
    runner: _Word | None = None
    isolation: Literal["recreate", "bluegreen", "router", "unknown"] | None = None
    lab: bool | None = None


class Local(_Body):
    """An operator's own setting on the engine."""

    source: _Word
    variant: _Variant


class RegisterBody(_Body):
    """`POST /api/v1/engines/register`."""

    registration_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    deployment: Id | None
    generation: Id = "default"
    role: Literal["prefill", "decode", "both"] = "both"
    features: Annotated[list[_Word], Field(max_length=64)] = []
    kvflags: _Word = ""
    deaths: _Small = 0
    running: _Variant | None = None
    local: Local | None = None
    facts: Facts = Facts()
    presented: Annotated[str, Field(max_length=8192)] | dict[str, Any] | None = None
    problems: _Problems = []
    refused: _Word | None = None

    def message(self) -> dict[str, Any]:
        """As the ledger takes it: facts that are not known are left out, so that defaults hold."""
        return self.model_dump() | {"facts": self.facts.model_dump(exclude_none=True)}


class Layout(_Body):
    """What was asked for and what came of it."""

    requested: _Word | None = None
    resolved: _Word | None = None
    regions: _Small | None = None
    layers: _Small | None = None
    effective: bool | None = None


class Exercised(_Body):
    """Transfers since the start."""

    ok: _Count = 0
    errors: _Count = 0


class Dropped(_Body):
    """What the engine could not send, since the start."""

    spans: _Count = 0
    events: _Count = 0


class HeartbeatBody(_Body):
    """`POST /api/v1/engines/{registration_id}/heartbeat`."""

    engine_id: Annotated[_Line, Field(min_length=1, max_length=128)]
    seq: _Count = 0
    clock: Annotated[datetime, Field(strict=False)] | None = None
    ranks: _Small = 1
    facts: Facts = Facts()
    layout: Layout = Layout()
    exercised: Exercised = Exercised()
    dropped: Dropped = Dropped()
    problems: _Problems = []

    def message(self) -> dict[str, Any]:
        """As the ledger takes it."""
        return self.model_dump() | {"facts": self.facts.model_dump(exclude_none=True)}


class Signed(_Body):
    """Who does it: without a name, the token's."""

    author: _Author = Field(default_factory=lambda: None, validate_default=True)


class Admit(Signed):
    """`name`: what the hub's operator calls the organisation; it is printed in no report."""

    name: Annotated[str, Field(max_length=200), AfterValidator(_printable)] = ""


class NewToken(Signed):
    """`POST /api/v1/tokens`. `expires_s`: null for never."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]
    scope: Annotated[Scope, Field(strict=False)]
    expires_s: float | None = None


class Change(Signed):
    """Who changes a flag, and why. `revision`: the one it was based on; another in force is a 409."""

    reason: _Text
    revision: _Revision | None = None


class Create(Change):
    """`POST /api/v1/flags`. Times in seconds, up to a year; `criteria` and `expires` as in a flag's file."""

    key: _Key
    feature: _Word
    baseline_s: Annotated[int, Field(ge=0, le=366 * 86_400)] = 7 * 86_400
    quiet_s: Annotated[int, Field(ge=0, le=366 * 86_400)] = 600
    criteria: _Criteria = []
    expires: _Day | None = None


class Extend(Change):
    """`PUT /api/v1/flags/{key}/expiry`. `expires`: the last day on which the flag stands; null: for good."""

    expires: _Day | None


class Target(Change):
    """`PUT /api/v1/flags/{key}/target`: exactly one of percent, count and inherit."""

    percent: float | None = None
    count: Annotated[int, Field(le=1_000_000)] | None = None
    inherit: bool = False
    backend: _Word | None = None


class KillSwitch(Change):
    """`PUT /api/v1/flags/{key}/kill-switch`."""

    on: bool


class Undo(Change):
    """`POST /api/v1/flags/{key}/undo`. `to`: the revision to aim as; without it, the aim before the last change."""

    to: _Revision | None = None


class Aim(_Body):
    """A target in a flag's file: exactly one of percent and count."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    percent: Annotated[float, Field(ge=0, le=100)] | None = None
    count: Annotated[int, Field(ge=0, le=1_000_000)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.percent is None) == (self.count is None):
            raise ValueError("a target is a percent or a count: exactly one of them")
        return self


class FlagFile(_Body):
    """A flag as it is kept in a file. What is left out has its default; an unknown field is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, title="kvflags flag file")

    key: _Key
    feature: _Word
    target: Aim | None = None
    overrides: Annotated[dict[_Label, Aim], Field(max_length=64)] = {}
    enrolment_percent: Annotated[float, Field(ge=0, le=100)] = 100
    holdback_percent: Annotated[float, Field(ge=0, le=100)] = 0
    held_back: Annotated[list[Id], Field(max_length=10_000)] = []
    labels: Annotated[dict[_Label, _Label], Field(max_length=64)] = {}
    vllm: Annotated[str, Field(max_length=200, examples=[">=0.30,<0.33"])] = ""
    baseline_s: Annotated[int, Field(ge=0, le=366 * 86_400)] = 7 * 86_400
    quiet_s: Annotated[int, Field(ge=0, le=366 * 86_400)] = 600
    criteria: _Criteria = []
    expires: _Day | None = None


class Apply(Change):
    """`PUT /api/v1/flags/{key}`. `dry_run`: say what would change, and change nothing."""

    file: FlagFile
    dry_run: bool = False


class RampStep(_Body):
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


class Opt(Change):
    """`PUT /api/v1/flags/{key}/opts`: in, out, or null to take what is dealt again."""

    deployment: Id
    opted: Literal["in", "out"] | None


class Force(Change):
    """`POST /api/v1/flags/{key}/pins`: an open generation, pinned by hand."""

    deployment: Id
    generation: Id
    variant: _Variant


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
    labels: Annotated[dict[_Label, _Label], Field(max_length=64)] = {}
    backend: _Word | None = None
    block_size: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class Decide(_Body):
    """`POST /api/v1/flags/{key}/decide`."""

    deployment: Id
    generation: Id = "default"


class GiveFeedback(Signed):
    """`POST /api/v1/flags/{key}/feedback`."""

    deployment: Id
    sign: _Sign
    tags: _Tags = []
    comment: _Remark

    def said(self) -> dict[str, Any]:
        """As it is kept: each tag once."""
        return {"sign": self.sign, "tags": sorted(set(self.tags)), "comment": self.comment}


class EditFeedback(Change):
    """`PUT /api/v1/flags/{key}/feedback/{id}`: what is left out stays."""

    sign: _Sign | None = None
    tags: _Tags | None = None
    comment: _Remark | None = None

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
    compared: _Small
    mismatched: _Small
    max_delta: Annotated[float, Field(ge=0, le=1e6)] | None = None
    tolerance: Annotated[float, Field(ge=0, le=10)]

    def found(self) -> dict[str, Any]:
        """As it is kept."""
        return self.model_dump(include={"outcome", "compared", "mismatched", "max_delta", "tolerance"})
