# SPDX-License-Identifier: Apache-2.0
"""A bundle from what a fleet knows. Pure: a verdict and counts in, the document out; small cells go, names never come.

The same inputs give the same document, whatever order they come in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kvflags import __version__
from kvflags_collector.feedback.given import TAGS
from kvflags_collector.hub import vocabulary
from kvflags_collector.hub.schema import BUNDLE, LEAST, Bundle
from kvflags_collector.verdict.compare import Estimate, Stratum
from kvflags_collector.verdict.decide import Verdict
from kvflags_collector.verdict.placebo import DeploymentVerdict

__all__ = ["Known", "aggregate"]

Json = dict[str, Any]

_MOST_STRATA = 32
# Figures beyond the sixth digit say nothing about a fleet and something about the machine that added them up.
_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a bundle is made of. fleet: 16 hex digits. day: `2026-12-03`. architectures: one a deployment.

    measured: the verdicts of treated deployments. given, tags: of what people said that stands.
    """

    fleet: str
    feature: str
    day: str
    verdict: Verdict
    effective_share: float | None
    architectures: Iterable[str | None]
    measured: Iterable[DeploymentVerdict]
    given: Iterable[str]
    tags: Iterable[str]


def aggregate(known: Known) -> Json:
    """The document, of schema `kvflags.bundle/1`, checked by it."""
    compared = known.verdict.compared
    classes = Counter(vocabulary.architecture(name) for name in known.architectures)
    strata = _strata(compared.strata) if compared else []
    document = {
        "schema": BUNDLE,
        "fleet": known.fleet,
        "feature": known.feature,
        "made_on": known.day,
        "kvflags": ".".join(__version__.split(".")[:3]),
        "verdict": known.verdict.state.value,
        "deployments": _cell(classes.total()),
        "treated": _cell(compared.treated if compared else 0),
        "control": _cell(compared.control if compared else 0),
        "effective_share": None if known.effective_share is None else round(known.effective_share, 2),
        "effects": _effects(compared.outcomes.values(), compared.treated, compared.control) if compared else [],
        "strata": strata,
        "strata_left_out": len(compared.strata) - len(strata) if compared else 0,
        "architectures": [
            {"architecture": name, "deployments": number} for name, number in sorted(classes.items()) if number >= LEAST
        ],
        "measured": _cells(map(str, known.measured), [one.value for one in DeploymentVerdict]),
        "given": _cells(known.given, ["positive", "negative"]) | _cells(known.tags, TAGS),
    }
    return Bundle.model_validate(document).model_dump(by_alias=True, exclude_unset=True)


def _cell(number: int) -> int | None:
    """A count; null from 1 to 4."""
    return number if number == 0 or number >= LEAST else None


def _cells(found: Iterable[str], names: Iterable[str]) -> dict[str, int | None]:
    number = Counter(found)
    return {name: _cell(number[name]) for name in names}


def _effects(estimates: Iterable[Estimate], treated: int, control: int) -> list[Json]:
    found = (_effect(one, treated, control) for one in estimates)
    return sorted((one for one in found if one), key=lambda one: str(one["outcome"]))


def _effect(found: Estimate, treated: int, control: int) -> Json | None:
    """None where there is no figure, or one over fewer than five deployments of an arm."""
    effect = found.effect
    if effect is not None:
        treated, control = effect.treated, effect.control
    unchanged = found.interval.low == found.interval.high == 0
    if min(treated, control) < LEAST or not (unchanged or (effect is not None and effect.varies)):
        return None
    return {
        "outcome": found.outcome.value,
        "log_ratio": 0.0 if unchanged or effect is None else round(effect.delta, _DIGITS),
        "se": 0.0 if unchanged or effect is None else round(effect.se, _DIGITS),
        "treated": treated,
        "control": control,
    }


def _strata(strata: Iterable[Stratum]) -> list[Json]:
    """The largest of those that every word of is known, and large enough in both arms; of equal ones the larger."""
    found: dict[str, Json] = {}
    for one in sorted(strata, key=lambda one: (-one.treated, -one.control, one.name)):
        words = vocabulary.stratum(one.name)
        effects = _effects(one.outcomes.values(), one.treated, one.control)
        if words is None or min(one.treated, one.control) < LEAST or not effects:
            continue
        label = ", ".join(map(str, words.values()))
        found.setdefault(label, {**words, "treated": one.treated, "control": one.control, "effects": effects})
    return list(found.values())[:_MOST_STRATA]
