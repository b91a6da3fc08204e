# SPDX-License-Identifier: Apache-2.0
"""The words of the domain as values: what engines and collector say to each other, and what the ledger stores.

All are frozen and travel as plain JSON (`to_json`, `from_json`); unknown fields are ignored, so that either side may be
newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Self

__all__ = [
    "BUCKETS",
    "HASH_VERSION",
    "Arm",
    "Assignment",
    "Comparison",
    "Decision",
    "Facts",
    "Flag",
    "Isolation",
    "Phase",
    "PinState",
    "Ramp",
    "Role",
    "Step",
    "Target",
    "Variant",
]

# Shares are counted in 1/1000 of a percent: integers all the way, so 25 % is exactly 25,000 buckets on every machine.
BUCKETS = 100_000

# Stored in every flag. A flag keeps the hash it was created with: changing it would deal all deployments anew.
HASH_VERSION = "flagd-v2"


class Variant(StrEnum):
    """What an engine does. The only thing that prefill and decode must agree on."""

    ON = "on"
    OFF = "off"


class Arm(StrEnum):
    """Which side of the comparison a deployment is on; both are measured alike."""

    TREATMENT = "treatment"
    CONTROL = "control"


class Comparison(StrEnum):
    """Whether a deployment counts in the comparison of the arms."""

    INCLUDED = "included"
    EXCLUDED = "excluded"


class Phase(StrEnum):
    """Where a flag is in its life."""

    DRAFT = "draft"
    RUNNING = "running"
    PAUSED = "paused"
    ABORTED = "aborted"
    COMPLETED = "completed"


class PinState(StrEnum):
    """The state of a generation's epoch; `open` is the absence of a pin."""

    PINNED = "pinned"
    CONDEMNED = "condemned"
    CLOSED = "closed"


class Role(StrEnum):
    """Which half of the transfer an engine serves."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"


class Isolation(StrEnum):
    """What keeps generations of one deployment from being paired with each other. The operator states it."""

    RECREATE = "recreate"
    BLUEGREEN = "bluegreen"
    ROUTER = "router"
    UNKNOWN = "unknown"


class _Json:
    """`to_json` and `from_json` for the dataclasses below; None and defaults travel too, so a record is whole."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        return cls(**{name: value for name, value in document.items() if name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class Facts(_Json):
    """What is known of one engine. None: not known (yet); a gate that needs it is then not met.

    `kv_heads_per_rank` counts KV heads on one tensor-parallel rank; `block_size` is in tokens. `lab` marks an engine of
    the demo or the tests.
    """

    vllm: str | None = None
    nixl: str | None = None
    model_class: str | None = None
    architecture: str | None = None
    backend: str | None = None
    block_size: int | None = None
    kv_heads_per_rank: int | None = None
    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    kv_cache_dtype: str | None = None
    connector: str | None = None
    nested_in: str | None = None
    gpu: str | None = None
    transport: str | None = None
    runner: str | None = None
    isolation: str = Isolation.UNKNOWN
    lab: bool = False

    def updated(self, later: Mapping[str, Any]) -> Facts:
        """These facts with whatever `later` knows better; its nulls change nothing."""
        return Facts.from_json(self.to_json() | {name: value for name, value in later.items() if value is not None})

    @property
    def stratum(self) -> str:
        """What must be alike to be compared: `FLASH_ATTN, H100, gqa, vLLM 0.32, 4 heads, block 16, rdma`.

        What is not known is left out; empty where nothing is.
        """
        minor = ".".join(self.vllm.split(".")[:2]) if self.vllm else None
        parts = (
            self.backend,
            self.gpu,
            self.model_class,
            minor and f"vLLM {minor}",
            self.kv_heads_per_rank and f"{self.kv_heads_per_rank} heads",
            self.block_size and f"block {self.block_size}",
            self.transport,
        )
        return ", ".join(str(part) for part in parts if part)


@dataclass(frozen=True, slots=True)
class Target(_Json):
    """How many deployments of a scope are treated: a share (in `BUCKETS`) or a number; exactly one of the two."""

    share: int | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        if (self.share is None) == (self.count is None):
            raise ValueError("a target is a percentage or a count: exactly one of them")
        if self.share is not None and not 0 <= self.share <= BUCKETS:
            raise ValueError("a percentage lies between 0 and 100")
        if self.count is not None and self.count < 0:
            raise ValueError("a count is 0 or more")

    def __str__(self) -> str:
        if self.share is not None:
            return f"{self.share * 100 / BUCKETS:g}%"
        return "1 deployment" if self.count == 1 else f"{self.count} deployments"


@dataclass(frozen=True, slots=True)
class Step(_Json):
    """One step of a ramp: aim at `target`, and stay at least `hold_s` seconds, until `sample` deployments are treated
    and effective. `approval`: a person has to promote it; the ramp never enters it by itself."""

    target: Target
    hold_s: int
    sample: int = 1
    approval: bool = False

    def to_json(self) -> dict[str, Any]:
        return super(Step, self).to_json() | {"target": self.target.to_json()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Step:
        return super(Step, cls).from_json({**document, "target": Target.from_json(document["target"])})


@dataclass(frozen=True, slots=True)
class Ramp(_Json):
    """The steps of a rollout, and where it is: `at` indexes the step in force (-1: none yet), entered at `since_us`."""

    steps: tuple[Step, ...]
    at: int = -1
    since_us: int = 0

    @property
    def following(self) -> Step | None:
        """The step that comes next, None after the last."""
        return self.steps[self.at + 1] if self.at + 1 < len(self.steps) else None

    def to_json(self) -> dict[str, Any]:
        return super(Ramp, self).to_json() | {"steps": [step.to_json() for step in self.steps]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Ramp:
        return super(Ramp, cls).from_json({**document, "steps": tuple(map(Step.from_json, document["steps"]))})


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag(_Json):
    """The stored rollout of one feature.

    `target` is the default; `overrides` holds one target per attention backend. `enrolment` and `holdback` are shares
    in `BUCKETS`. `baseline_s` and `quiet_s` are in seconds: how long a deployment is observed before it can be treated,
    and for how long it must have had no new engine.

    `labels` and `vllm` (a range such as `>=0.30,<0.33`) are gates of this flag beside those of the feature. `held_back`
    names deployments that are never treated, for fleets too small for a share; `rolled_back` strata that a guardrail
    switched off. `criteria` for graduation (see `kvflags.flags.graduation`) and `expires` (the last day on which it
    stands, UTC) are declared when the flag is created. `default_since_us`: since when it is being made the default,
    with a last holdback.
    """

    key: str
    feature: str
    salt_enrolment: str
    salt_arm: str
    revision: int = 1
    phase: Phase = Phase.DRAFT
    target: Target | None = None
    overrides: Mapping[str, Target] = field(default_factory=dict)
    enrolment: int = BUCKETS
    holdback: int = 0
    kill_switch: bool = False
    baseline_s: int = 7 * 86_400
    quiet_s: int = 600
    labels: Mapping[str, str] = field(default_factory=dict)
    vllm: str = ""
    held_back: tuple[str, ...] = ()
    rolled_back: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()
    expires: str | None = None
    ramp: Ramp | None = None
    default_since_us: int | None = None
    hash_version: str = HASH_VERSION

    def target_for(self, backend: str) -> Target:
        """The target of a deployment with this backend. Without any default, the rest is at 0."""
        return self.overrides.get(backend) or self.target or Target(share=0)

    def to_json(self) -> dict[str, Any]:
        return super(Flag, self).to_json() | {
            "target": self.target and self.target.to_json(),
            "overrides": {backend: target.to_json() for backend, target in self.overrides.items()},
            "labels": dict(self.labels),
            "held_back": list(self.held_back),
            "rolled_back": list(self.rolled_back),
            "criteria": list(self.criteria),
            "ramp": self.ramp and self.ramp.to_json(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Flag:
        target, overrides, ramp = document.get("target"), document.get("overrides") or {}, document.get("ramp")
        return super(Flag, cls).from_json(
            {
                **document,
                "phase": Phase(document.get("phase", Phase.DRAFT)),
                "target": Target.from_json(target) if target else None,
                "overrides": {backend: Target.from_json(entry) for backend, entry in overrides.items()},
                "held_back": tuple(document.get("held_back") or ()),
                "rolled_back": tuple(document.get("rolled_back") or ()),
                "criteria": tuple(document.get("criteria") or ()),
                "ramp": Ramp.from_json(ramp) if ramp else None,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment(_Json):
    """What a ramp step dealt to one deployment; the pin of its next generation carries it out.

    `bucket` is its place in [0, BUCKETS) under the arm salt. `ever_treated`: it was in the treatment arm at some step.
    """

    deployment: str
    arm: str | None
    comparison: str
    reason: str
    bucket: int
    backend: str
    ever_treated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(_Json):
    """The answer for one (flag, deployment, generation, epoch), as the collector sends it, with its reason."""

    feature: str
    flag: str
    variant: str
    reason: str
    arm: str | None = None
    comparison: str = Comparison.EXCLUDED
    revision: int = 0
    bucket: int | None = None
    epoch: int = 0
    state: str = PinState.PINNED
    signed: str | None = None
