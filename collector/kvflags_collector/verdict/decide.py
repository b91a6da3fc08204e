# SPDX-License-Identifier: Apache-2.0
"""The verdict on a flag. Pure: frozen events, counts and facts in, a state with its reasons in words out.

The rows are asked from the top, and the first that finds something is the verdict. Harm comes before doubt: what cannot
be trusted blocks a promotion and never delays a rollback for failures. One deployment whose guard fired
stands behind what is proven of the fleet, or a regression of all could hide behind it; it is returned either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kvflags_collector.verdict import checks, harm, promotion
from kvflags_collector.verdict.compare import Compared, Estimate, compare, failures_compared
from kvflags_collector.verdict.evidence import Inputs
from kvflags_collector.verdict.minima import unmet
from kvflags_collector.verdict.treatment import spoiled
from kvflags_collector.verdict.words import Finding

__all__ = ["Verdict", "VerdictState", "verdict"]


class VerdictState(StrEnum):
    """What can be said of a flag."""

    WAITING = "waiting"
    ON_TRACK = "on_track"
    HOLD = "hold"
    NEUTRAL = "neutral"
    REGRESSION = "regression"
    INVALID = "invalid"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Verdict:
    """reason: a stable code, that of the first sentence of `why`. next: what to do, or what is waited for.

    scope: the strata it is ready for. returned: deployments to be condemned whatever the state. invalid: strata that
    were left out of it, and why. compared: the numbers behind it; null before the first event.
    failures: those of failed transfers over every stratum. reasons: the code of each sentence.
    """

    state: VerdictState
    reason: str
    why: tuple[str, ...]
    next: str
    scope: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    invalid: Mapping[str, str] = field(default_factory=dict)
    compared: Compared | None = field(default=None, compare=False)
    failures: Estimate | None = field(default=None, compare=False)
    reasons: tuple[str, ...] = field(default=(), compare=False)


def verdict(inputs: Inputs) -> Verdict:
    """What is found in the first row that finds something. Never raises, whatever is missing."""
    spoilt = spoiled(inputs.deployments, inputs.minima.effective)
    events = inputs.events if inputs.events is not None and len(inputs.events) else None
    compared = compare(events, spoilt.keys()) if events is not None else None
    failures = failures_compared(events, compared) if events is not None else None
    failing = harm.failing(inputs, failures)
    state, findings = next(_found(_rows(inputs, compared, failing, spoilt)))
    return Verdict(
        state,
        findings[0].reason,
        tuple(dict.fromkeys(one.says for one in findings)),
        findings[0].next,
        scope=tuple(promotion.scope(compared)) if state is VerdictState.READY and compared else (),
        returned=tuple(sorted({*(fire.deployment for fire in inputs.fires), *inputs.canaries})),
        warnings=tuple(checks.warnings(inputs)),
        invalid={} if state is VerdictState.INVALID else {name: found[0].says for name, found in spoilt.items()},
        compared=compared,
        failures=failures,
        reasons=tuple(dict.fromkeys(one.reason for one in findings)),
    )


_Row = tuple[VerdictState, Iterator[Finding]]


def _rows(
    inputs: Inputs, compared: Compared | None, failing: Iterator[Finding], spoilt: Mapping[str, Sequence[Finding]]
) -> Iterator[_Row]:
    """The decision table from the top; a row is computed when those above it found nothing."""
    yield VerdictState.REGRESSION, failing
    yield VerdictState.INVALID, checks.distrusted(inputs, compared, spoilt)
    if compared is not None:
        yield VerdictState.REGRESSION, harm.slower(inputs, compared)
    yield VerdictState.HOLD, harm.held(inputs, compared)
    yield VerdictState.WAITING, unmet(inputs, compared)
    assert compared is not None, "without events a minimum is not met"
    gaps = promotion.missing(compared)
    if not gaps:
        yield VerdictState.READY, iter((promotion.promoted(compared),))
    yield VerdictState.NEUTRAL, promotion.neutral(compared)
    yield VerdictState.ON_TRACK, promotion.undecided(inputs, gaps)


def _found(rows: Iterator[_Row]) -> Iterator[tuple[VerdictState, list[Finding]]]:
    for state, findings in rows:
        if found := list(findings):
            yield state, found
