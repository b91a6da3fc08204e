# SPDX-License-Identifier: Apache-2.0
"""The numbers behind a verdict as the report has them: outcomes with intervals and limits, and every stratum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, fsum, isfinite

from sqlalchemy import RowMapping

from kvflags_collector.feedback.document import Arm, Effect, Said, Signs, Stratum
from kvflags_collector.feedback.signs import NO_SIGNS
from kvflags_collector.verdict import compare
from kvflags_collector.verdict.compare import Estimate
from kvflags_collector.verdict.decide import Verdict
from kvflags_collector.verdict.events import AFTER_DAYS
from kvflags_collector.verdict.forecast import more_treated
from kvflags_collector.verdict.outcomes import PRIMARY, Outcome
from kvflags_collector.verdict.placebo import DeploymentVerdict
from kvflags_collector.verdict.promotion import BETTER, NEUTRAL

__all__ = ["levels", "outcomes", "said", "strata"]

# Outcome -> arm -> the typical value after the event.
Levels = Mapping[str, Mapping[str, float | None]]

_UNITS = {
    Outcome.TIME_TO_FIRST_TOKEN: "s",
    Outcome.INTER_TOKEN_LATENCY: "s",
    Outcome.OUTPUT_TOKENS: "tokens/s",
    Outcome.FAILED_TRANSFERS: "of transfers",
    Outcome.KV_BLOCKS: "blocks",
}
_ARMS = ("control", "treatment")
_SIDES = ((False, "control"), (True, "treatment"))


def said(one: Verdict) -> Said:
    """The verdict itself."""
    return {
        "state": one.state.value,
        "reason": one.reason,
        "why": list(one.why),
        "next": one.next,
        "scope": list(one.scope),
        "returned": list(one.returned),
        "warnings": list(one.warnings),
        "invalid_strata": dict(one.invalid),
    }


def levels(rows: Iterable[RowMapping], arms: Sequence[Arm]) -> Levels:
    """Of each arm, from the events that count, and the share of transfers that failed."""
    kept = [row for row in rows if row["horizon"] == AFTER_DAYS and row["left_out"] is None]
    sides = {name: [row["measured"].get("levels", {}) for row in kept if row["treated"] == on] for on, name in _SIDES}
    found = {
        outcome.value: {arm: _typical(own, outcome.value) for arm, own in sides.items()}
        for outcome in _UNITS
        if outcome is not Outcome.FAILED_TRANSFERS
    }
    failed = {
        arm["arm"] or "": arm["failed"] / arm["transfers"]
        for arm in arms
        if arm["transfers"] and arm["failed"] is not None
    }
    return found | {Outcome.FAILED_TRANSFERS.value: {arm: failed.get(arm) for arm in _ARMS}}


def _typical(own: Sequence[Mapping[str, Sequence[float | None]]], outcome: str) -> float | None:
    """The geometric mean of what is known after the event."""
    logs = [one[outcome][1] for one in own if outcome in one]
    known = [value for value in logs if value is not None]
    return _figures(exp(fsum(known) / len(known))) if known else None


def outcomes(one: Verdict, typical: Levels) -> list[Effect]:
    """Over the fleet; empty before the first event."""
    return [_outcome(estimate, typical) for estimate in one.compared.outcomes.values()] if one.compared else []


def strata(one: Verdict, signs: Mapping[str, Signs]) -> list[Stratum]:
    """Each by itself; `outcomes` is empty where it is too small to be decided. First those with events, by name."""
    judged = [_stratum(stratum, one, signs) for stratum in one.compared.strata] if one.compared else []
    names = {stratum["name"] for stratum in judged}
    return judged + [_unjudged(name, own) for name, own in signs.items() if name not in names]


def _stratum(stratum: compare.Stratum, one: Verdict, signs: Mapping[str, Signs]) -> Stratum:
    primary = stratum.outcomes.get(PRIMARY)
    verdict = _verdict(primary)
    return {
        "name": stratum.name,
        "treated": stratum.treated,
        "control": stratum.control,
        "ready": stratum.name in one.scope,
        "verdict": verdict.value,
        "more": _more(stratum, primary) if verdict is DeploymentVerdict.INSUFFICIENT else None,
        "outcomes": [_outcome(estimate, {}) for estimate in stratum.outcomes.values()],
        "signs": signs.get(stratum.name, NO_SIGNS),
    }


def _unjudged(name: str, signs: Signs) -> Stratum:
    """One without any event so far."""
    none = DeploymentVerdict.INSUFFICIENT.value
    empty: Stratum = {
        "name": name,
        "treated": 0,
        "control": 0,
        "ready": False,
        "verdict": none,
        "more": compare.LEAST_TREATED,
        "outcomes": [],
        "signs": signs,
    }
    return empty


def _verdict(primary: Estimate | None) -> DeploymentVerdict:
    """What is proven of time to first token in a stratum, as of one deployment."""
    if primary is None or primary.effect is None:
        return DeploymentVerdict.INSUFFICIENT
    if primary.interval.high < 0 and primary.effect.delta <= BETTER:
        return DeploymentVerdict.POSITIVE
    if primary.interval.low > 0:
        return DeploymentVerdict.NEGATIVE
    return DeploymentVerdict.NEUTRAL if primary.interval.within(NEUTRAL) else DeploymentVerdict.INSUFFICIENT


def _more(stratum: compare.Stratum, primary: Estimate | None) -> int | None:
    if primary is None or primary.effect is None:
        return max(compare.LEAST_TREATED - stratum.treated, 1)
    return more_treated(primary.effect, 0.0, primary.alpha) if primary.effect.varies else None


def _outcome(found: Estimate, typical: Levels) -> Effect:
    """Changes as ratios less 1; null where nothing can be said, or nothing failed anywhere."""
    effect = found.effect
    own = typical.get(found.outcome.value, {})
    return {
        "outcome": found.outcome.value,
        "role": found.limit.role.value,
        "change": _ratio(effect.delta) if effect else None,
        "low": _ratio(found.interval.low) if effect else None,
        "high": _ratio(found.interval.high) if effect else None,
        "confidence": 1 - found.alpha,
        "limit": found.limit.words,
        "standing": found.standing.value,
        "treated": effect.treated if effect else None,
        "control": effect.control if effect else None,
        "levels": {arm: own.get(arm) for arm in _ARMS},
        "unit": _UNITS.get(found.outcome, ""),
    }


def _ratio(log_ratio: float) -> float | None:
    return round(exp(min(log_ratio, 50.0)) - 1, 6) if isfinite(log_ratio) else None


def _figures(value: float) -> float:
    """Six significant ones."""
    return float(f"{value:.6g}")
