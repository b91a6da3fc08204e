# SPDX-License-Identifier: Apache-2.0
"""The arms compared: every outcome over the fleet, the primary and its counterweight in every stratum."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from kvflags_collector.verdict.arrays import Floats
from kvflags_collector.verdict.effect import Design, Effect, Interval
from kvflags_collector.verdict.events import Events
from kvflags_collector.verdict.outcomes import LIMITS, PRIMARY, Limit, Outcome

__all__ = ["Compared", "Estimate", "Standing", "Stratum", "compare", "failures_compared", "moved_invariants"]

ALPHA = 0.05
# Two-sided, so harm is declared wrongly in 1 %.
ALPHA_ERRORS = 0.02
LEAST_TREATED = 8


class Standing(StrEnum):
    """Of an outcome against its limit."""

    MET = "met"
    BROKEN = "broken"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Estimate:
    """effect: None where no transfer failed in either arm, which is then all there is to say."""

    limit: Limit
    effect: Effect | None
    interval: Interval
    standing: Standing
    alpha: float

    @property
    def outcome(self) -> Outcome:
        return self.limit.outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """One stratum by itself. treated, control: events. outcomes: empty where it is too small to be decided."""

    name: str
    treated: int
    control: int
    outcomes: Mapping[Outcome, Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """treated, control: events that could be compared. unmatched: treated ones without a control to compare with."""

    treated: int
    control: int
    unmatched: int
    outcomes: Mapping[Outcome, Estimate]
    strata: Sequence[Stratum]

    def interval(self, outcome: Outcome) -> Interval | None:
        found = self.outcomes.get(outcome)
        return found.interval if found else None


def compare(events: Events, without: Collection[str] = ()) -> Compared:
    """All of it, without the strata that cannot be trusted."""
    kept = [name not in without for name in events.strata]
    if not all(kept):
        events = events.where(np.asarray(kept, dtype=np.bool_)[events.stratum])
    design = Design(events.cohort, events.stratum, events.treated)
    treated = int(events.treated.sum())
    return Compared(
        treated=len(design.rows),
        control=len(events) - treated,
        unmatched=treated - len(design.rows),
        outcomes=_outcomes(events, design, tuple(events.values), 1),
        strata=_strata(events),
    )


def failures_compared(events: Events, compared: Compared | None) -> Estimate | None:
    """Failed transfers over every stratum: nothing that spoils a comparison delays the guard against harm."""
    if compared is not None and compared.treated + compared.unmatched + compared.control == len(events):
        return compared.outcomes.get(Outcome.FAILED_TRANSFERS)
    design = Design(events.cohort, events.stratum, events.treated)
    return _outcomes(events, design, (Outcome.FAILED_TRANSFERS,), 1).get(Outcome.FAILED_TRANSFERS)


def moved_invariants(events: Events) -> dict[str, Effect]:
    """What no treatment can change, and yet differs between the arms."""
    moved = {}
    for name, values in events.invariants.items():
        effect = _effect(events, values, None)
        if effect is None or not effect.varies:
            continue
        interval = effect.interval(ALPHA / len(events.invariants))
        if interval.low > 0 or interval.high < 0:
            moved[name] = effect
    return moved


def _strata(events: Events) -> list[Stratum]:
    number = np.bincount(events.stratum, minlength=len(events.strata))
    treated = np.bincount(events.stratum[events.treated], minlength=len(events.strata))
    decided = int((treated >= LEAST_TREATED).sum())
    found = []
    for index, name in enumerate(events.strata):
        if not number[index]:
            continue
        outcomes: Mapping[Outcome, Estimate] = {}
        if treated[index] >= LEAST_TREATED:
            own = events.where(events.stratum == index)
            design = Design(own.cohort, own.stratum, own.treated)
            outcomes = _outcomes(own, design, (PRIMARY, Outcome.INTER_TOKEN_LATENCY), decided)
        n_t = int(treated[index])
        found.append(Stratum(name=name, treated=n_t, control=int(number[index]) - n_t, outcomes=outcomes))
    return found


def _outcomes(events: Events, design: Design, outcomes: Sequence[Outcome], comparisons: int) -> dict[Outcome, Estimate]:
    found = {}
    for outcome in outcomes:
        if outcome in events.values and (one := _estimate(events, design, outcome, comparisons)) is not None:
            found[outcome] = one
    return found


def _estimate(events: Events, design: Design, outcome: Outcome, comparisons: int) -> Estimate | None:
    limit = LIMITS[outcome]
    alpha = (ALPHA_ERRORS if outcome is Outcome.FAILED_TRANSFERS else ALPHA) / comparisons
    effect = _effect(events, events.values[outcome], design)
    if effect is None:
        return None
    if outcome is Outcome.FAILED_TRANSFERS and not events.failures.any():
        return Estimate(limit, None, Interval(0.0, 0.0), Standing.MET, alpha)
    interval = effect.interval(alpha)
    standing = Standing.MET if limit.met(interval) else Standing.BROKEN if limit.broken(interval) else Standing.OPEN
    return Estimate(limit, effect, interval, standing, alpha)


def _effect(events: Events, values: Floats, design: Design | None) -> Effect | None:
    """With the design given where every event has a value, else with one of those that have."""
    known = np.isfinite(values)
    if design is not None and known.all():
        return design.effect(values)
    if not known.any():
        return None
    return Design(events.cohort[known], events.stratum[known], events.treated[known]).effect(values[known])
