# SPDX-License-Identifier: Apache-2.0
"""The verdict over organisations. Pure: what each of them measured in, a state with its reasons in words out.

The rows are those of one fleet's verdict, with organisations in the place of deployments; the first that finds
something decides. Nothing good is concluded from fewer than five, where one weighs more than 40 %, or where the effect
is gone without the one that weighs most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from kvflags_collector.verdict.compare import ALPHA, ALPHA_ERRORS, Standing
from kvflags_collector.verdict.decide import VerdictState
from kvflags_collector.verdict.effect import Interval
from kvflags_collector.verdict.organisations import LARGEST_SHARE, LEAST_ORGANISATIONS, Across, Organisation, across
from kvflags_collector.verdict.outcomes import LIMITS, PRIMARY, Limit, Outcome, Role
from kvflags_collector.verdict.promotion import BETTER, NEUTRAL
from kvflags_collector.verdict.words import Finding, count, percent, ranged

__all__ = ["Field", "FieldEstimate", "FieldVerdict", "Measured", "estimate", "field_verdict"]

# How much worse a stratum of the scope may still be.
_HARM = NEUTRAL


@dataclass(frozen=True, slots=True)
class Measured:
    """An outcome by organisation. unchanged: how many more report that nothing failed, or changed at all, in any fleet:
    they have no error to weigh them by."""

    organisations: Sequence[Organisation]
    unchanged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldEstimate:
    """across: None where nobody has an estimate; then it is the point 0 if all are unchanged, else the line."""

    limit: Limit
    across: Across | None
    unchanged: int
    interval: Interval
    standing: Standing


Field = Mapping[Outcome, FieldEstimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldVerdict:
    """As a fleet's verdict: reason is the code of the first sentence of `why`. scope: the strata it is ready for."""

    state: VerdictState
    reason: str
    why: tuple[str, ...]
    next: str
    scope: tuple[str, ...] = ()


def estimate(outcome: Outcome, measured: Measured, comparisons: int = 1) -> FieldEstimate:
    """Over the organisations; `comparisons`: how many such estimates share the error."""
    limit = LIMITS[outcome]
    alpha = (ALPHA_ERRORS if outcome is Outcome.FAILED_TRANSFERS else ALPHA) / comparisons
    found = across(measured.organisations, alpha)
    if found is not None:
        interval = found.interval
    else:
        interval = Interval(0.0, 0.0) if measured.unchanged else Interval(-inf, inf)
    return FieldEstimate(
        limit=limit,
        across=found,
        unchanged=measured.unchanged,
        interval=interval,
        standing=_standing(limit, interval, found),
    )


def field_verdict(field: Field, strata: Mapping[str, Field]) -> FieldVerdict:
    """What can be said over all of them, and for which strata. Never raises, whatever is missing."""
    scope = tuple(sorted(name for name, own in strata.items() if _in_scope(own)))
    state, findings = next(_found(_rows(field, scope)))
    return FieldVerdict(
        state=state,
        reason=findings[0].reason,
        why=tuple(dict.fromkeys(one.says for one in findings)),
        next=findings[0].next,
        scope=scope if state is VerdictState.READY else (),
    )


def _standing(limit: Limit, interval: Interval, found: Across | None) -> Standing:
    if limit.broken(interval):
        return Standing.BROKEN
    enough = found is None or found.rules_met
    return Standing.MET if limit.met(interval) and enough else Standing.OPEN


def _rows(field: Field, scope: Sequence[str]) -> Iterator[tuple[VerdictState, Iterator[Finding]]]:
    yield VerdictState.REGRESSION, _harm(field)
    yield VerdictState.WAITING, _unmet(field)
    gaps = list(_missing(field, scope))
    if not gaps:
        says = f"Time to first token: {_words(field[PRIMARY])}; every guard is within its limit."
        yield VerdictState.READY, iter((Finding("better", says, f"Make it the default for {'; '.join(scope)}."),))
    yield VerdictState.NEUTRAL, _neutral(field)
    yield VerdictState.ON_TRACK, iter(gaps)


def _found(
    rows: Iterator[tuple[VerdictState, Iterator[Finding]]],
) -> Iterator[tuple[VerdictState, list[Finding]]]:
    for state, findings in rows:
        if found := list(findings):
            yield state, found


def _harm(field: Field) -> Iterator[Finding]:
    """In the order of the table of a fleet: failures, time to first token, what decode pays."""
    for outcome in (Outcome.FAILED_TRANSFERS, PRIMARY, Outcome.INTER_TOKEN_LATENCY):
        found = field.get(outcome)
        if found is None or found.across is None:
            continue
        # For failures harm is any proven rise; the limit of x3 is for what is promoted.
        worst = 0.0 if outcome is Outcome.FAILED_TRANSFERS else found.limit.worst
        if found.interval.low > worst:
            says = f"Worse: {outcome.words}, {_words(found)}."
            yield Finding(outcome.value, says, "Leave the default off; find out why before anybody widens it.")


def _unmet(field: Field) -> Iterator[Finding]:
    found = field.get(PRIMARY)
    over = found.across if found else None
    number = over.organisations if over else 0
    if number < LEAST_ORGANISATIONS:
        says = f"{count(number, 'organisation')} measured time to first token; {LEAST_ORGANISATIONS} are needed."
        yield Finding("too_few_organisations", says, "Ask more fleets for a bundle (kvflags feedback submit).")
    elif over is not None and over.share > LARGEST_SHARE:
        says = f"One organisation has {over.share:.0%} of the weight; {LARGEST_SHARE:.0%} is the most."
        yield Finding("one_dominates", says, "Ask more fleets for a bundle (kvflags feedback submit).")


def _missing(field: Field, scope: Sequence[str]) -> Iterator[Finding]:
    """What `ready` asks for and does not have."""
    more = "Keep testing; more organisations narrow the interval."
    primary = field[PRIMARY]
    over = primary.across
    assert over is not None, "fewer than five organisations are waited for"
    says = _words(primary)
    if primary.interval.high >= 0:
        yield Finding("not_yet_better", f"Time to first token is not yet shown to improve: {says}.", more)
    if over.delta > BETTER:
        yield Finding("too_small", f"Time to first token improves by less than 5%: {says}.", more)
    if over.without is not None and over.without.delta > BETTER:
        alone = percent(over.without.delta)
        yield Finding("rests_on_one", f"Without the largest organisation time to first token changes by {alone}.", more)
    for limit in LIMITS.values():
        if limit.role is Role.GUARD and (gap := _guard(field.get(limit.outcome), limit)):
            yield Finding(limit.outcome.value, gap, more)
    if not scope:
        says = f"No stratum has {LEAST_ORGANISATIONS} organisations and rules out {percent(_HARM)}."
        yield Finding("no_scope", says, more)


def _guard(found: FieldEstimate | None, limit: Limit) -> str | None:
    if found is None or (found.across is None and not found.unchanged):
        return f"Nobody measured {limit.outcome.words}."
    if found.standing is Standing.MET:
        return None
    return f"Not shown to stay within the limit: {limit.outcome.words}, {_words(found)}, limit {limit.words}."


def _neutral(field: Field) -> Iterator[Finding]:
    primary, failures = field[PRIMARY], field.get(Outcome.FAILED_TRANSFERS)
    if primary.interval.within(NEUTRAL) and failures is not None and failures.standing is Standing.MET:
        says = f"Time to first token changes by less than 10%: {_words(primary)}."
        yield Finding("little_difference", says, "Leave the default off.")


def _in_scope(own: Field) -> bool:
    """The rules of the whole, for this stratum alone, and no harm left to fear."""
    primary = own.get(PRIMARY)
    if primary is None or primary.across is None or not primary.across.rules_met:
        return False
    broken = any(one.standing is Standing.BROKEN for one in own.values())
    return primary.interval.high < _HARM and not broken


def _words(found: FieldEstimate) -> str:
    return ranged(found.limit.outcome, found.across.delta if found.across else 0.0, found.interval)
