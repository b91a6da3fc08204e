# SPDX-License-Identifier: Apache-2.0
"""The numbers behind a verdict as the report has them: outcomes with intervals and limits, and every stratum."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, isfinite
from typing import Any

from kvflags_collector.verdict.compare import Estimate, Stratum
from kvflags_collector.verdict.decide import Verdict

__all__ = ["outcomes", "said", "strata"]


def said(one: Verdict) -> dict[str, Any]:
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


def outcomes(one: Verdict) -> list[dict[str, Any]]:
    """Over the fleet; empty before the first event."""
    return _outcomes(one.compared.outcomes.values()) if one.compared else []


def strata(one: Verdict) -> list[dict[str, Any]]:
    """Each by itself; `outcomes` is empty where it is too small to be decided."""
    return [_stratum(stratum, one) for stratum in one.compared.strata] if one.compared else []


def _stratum(stratum: Stratum, one: Verdict) -> dict[str, Any]:
    return {
        "name": stratum.name,
        "treated": stratum.treated,
        "control": stratum.control,
        "ready": stratum.name in one.scope,
        "outcomes": _outcomes(stratum.outcomes.values()),
    }


def _outcomes(estimates: Iterable[Estimate]) -> list[dict[str, Any]]:
    return [_outcome(estimate) for estimate in estimates]


def _outcome(found: Estimate) -> dict[str, Any]:
    """Changes as ratios less 1; null where nothing can be said, or nothing failed anywhere."""
    effect = found.effect
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
    }


def _ratio(log_ratio: float) -> float | None:
    return round(exp(min(log_ratio, 50.0)) - 1, 6) if isfinite(log_ratio) else None
