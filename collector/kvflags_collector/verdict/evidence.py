# SPDX-License-Identifier: Apache-2.0
"""What a verdict is asked about: all that is known of a flag at one time. The store or a simulator fills it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import nan

from kvflags_collector.verdict import treatment
from kvflags_collector.verdict.arrays import Bools, Floats
from kvflags_collector.verdict.events import Events
from kvflags_collector.verdict.placebo import DeploymentVerdict
from kvflags_collector.verdict.treatment import Treatment

__all__ = ["Alone", "Check", "Fire", "Inputs", "Minima", "Trials"]


class Check(StrEnum):
    """What must not depend on the arm. A trial is a deployment to which it happened."""

    ASSIGNMENT = "assignment"
    SILENCE = "silence"
    RESTARTS = "restarts"
    LEFT_OUT = "left_out"


@dataclass(frozen=True, slots=True)
class Trials:
    """probability: that each was treated, known beforehand; treated: whether it was. Shapes (n,)."""

    probability: Floats
    treated: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """The error guard of a treated deployment fired. acknowledged: a maintainer has seen it and lets the ramp go on.

    value: the evidence, against its limit; n: transfers since the event; times: of the event and its last block.
    """

    deployment: str
    says: str
    acknowledged: bool = False
    value: float = nan
    limit: float = nan
    n: int = 0
    since_us: int | None = None
    until_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """What one treated deployment's own change says, against what `controls` controls do by themselves; log ratios."""

    deployment: str
    verdict: DeploymentVerdict
    change: float
    low: float
    high: float
    controls: int
    stratum: str = ""
    acknowledged: bool = False
    since_us: int | None = None
    until_us: int | None = None


@dataclass(frozen=True, slots=True)
class Minima:
    """What a comparison needs. With fewer than 8 deployments an arm has no variance worth the name; 7 days at a quarter
    of the fleet cover a weekend; with under 90 % effective, arms as assigned say little about the feature."""

    treated: int = 8
    control: int = 8
    days: float = 7.0
    share: float = 0.25
    effective: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """key: of the flag. deployments: those in the comparison. days: for how long the treated share has been at its
    minimum. outcomes: whether any were received. events: what is frozen so far; null before the first.

    fires: of every deployment whose error guard fired, ever. canaries: deployments whose canary found other logprobs.
    alone: every treated deployment by itself. rolled_back: strata that are switched off already.
    """

    key: str
    running: bool
    deployments: Sequence[Treatment] = ()
    days: float = 0.0
    outcomes: bool = False
    events: Events | None = None
    fires: Sequence[Fire] = ()
    canaries: Sequence[str] = ()
    alone: Sequence[Alone] = ()
    rolled_back: Collection[str] = ()
    trials: Mapping[Check, Trials] = field(default_factory=dict)
    minima: Minima = field(default_factory=Minima)

    @property
    def effective_share(self) -> float | None:
        """Of the treated deployments whose layout is known; null without any."""
        return treatment.effective_share(self.deployments)

    def number(self, *, treated: bool) -> int:
        """Of deployments in an arm."""
        return sum(one.treated == treated for one in self.deployments)
