# SPDX-License-Identifier: Apache-2.0
"""Whether the feature may become the default, where, and what is still missing: rows 6, 7 and 8."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, log

from kvflags_collector.verdict.compare import LEAST_TREATED, Compared, Estimate, Standing, Stratum
from kvflags_collector.verdict.evidence import Inputs
from kvflags_collector.verdict.forecast import MOST, more_treated
from kvflags_collector.verdict.outcomes import LIMITS, PRIMARY, Outcome, Role
from kvflags_collector.verdict.words import Finding, count, percent, ranged

__all__ = ["Missing", "missing", "neutral", "promoted", "scope", "undecided"]

BETTER = log(0.95)
NEUTRAL = log(1.1)
# How much worse a stratum of the scope may still be.
_HARM = log(1.1)


@dataclass(frozen=True, slots=True)
class Missing:
    """A condition of the promotion that is not met. more: treated deployments after which it is known, or None."""

    reason: str
    says: str
    more: int | None = None


def scope(compared: Compared) -> list[str]:
    """Strata with enough treated deployments in which no real harm is possible any more."""
    return [one.name for one in compared.strata if one.treated >= LEAST_TREATED and _harmless(one)]


def _harmless(stratum: Stratum) -> bool:
    primary = stratum.outcomes.get(PRIMARY)
    broken = any(one.standing is Standing.BROKEN for one in stratum.outcomes.values())
    return primary is not None and primary.interval.high < _HARM and not broken


def missing(compared: Compared) -> list[Missing]:
    """What row 6 asks for and does not have; empty: ready."""
    found = [*_primary(compared)]
    found += [gap for limit in LIMITS.values() if limit.role is Role.GUARD for gap in _guard(compared, limit.outcome)]
    if not scope(compared):
        says = f"No stratum has {LEAST_TREATED} treated events and rules out {percent(_HARM)} in time to first token."
        found.append(Missing("no_scope", says))
    return found


def promoted(compared: Compared) -> Finding:
    """The sentence of a verdict that is ready."""
    found = compared.outcomes[PRIMARY]
    assert found.effect is not None, "the primary outcome was estimated"
    says = (
        f"Time to first token: {ranged(PRIMARY, found.effect.delta, found.interval)}; every guard is within its limit."
    )
    return Finding(
        "better", says, f"Make it the default for {', '.join(scope(compared))}; keep a holdback for 14 days."
    )


def neutral(compared: Compared) -> Iterator[Finding]:
    """Row 7: proven to make little difference, and not to fail more."""
    primary = compared.outcomes.get(PRIMARY)
    failures = compared.outcomes.get(Outcome.FAILED_TRANSFERS)
    if primary is None or primary.effect is None or failures is None:
        return
    if primary.interval.within(NEUTRAL) and failures.standing is Standing.MET:
        says = ranged(PRIMARY, primary.effect.delta, primary.interval)
        yield Finding(
            "little_difference", f"Time to first token changes by less than 10%: {says}.", "Leave the default off."
        )


def undecided(inputs: Inputs, gaps: Sequence[Missing]) -> Iterator[Finding]:
    """Row 8: all that is missing, and how far away it is."""
    outlook = _outlook(inputs, gaps)
    for gap in gaps:
        yield Finding(gap.reason, gap.says, outlook)


def _outlook(inputs: Inputs, gaps: Sequence[Missing]) -> str:
    if any(gap.more is None for gap in gaps):
        return f"Keep testing; as it looks, {MOST} more treated deployments would not settle it: ask other fleets."
    more = max(gap.more or 0 for gap in gaps)
    share = inputs.number(treated=True) / max(1, len(inputs.deployments))
    enrolled = ceil(more / share) if share else more
    return f"Keep testing; about {count(more, 'more treated deployment')} ({enrolled} more enrolled) would settle it."


def _primary(compared: Compared) -> Iterator[Missing]:
    found = compared.outcomes.get(PRIMARY)
    if found is None or found.effect is None:
        yield Missing("no_outcomes", "Time to first token cannot be compared.")
        return
    says = ranged(PRIMARY, found.effect.delta, found.interval)
    if found.interval.high >= 0:
        yield Missing("not_yet_better", f"Time to first token is not yet shown to improve: {says}.", _more(found, 0.0))
    if found.effect.delta > BETTER:
        yield Missing("too_small", f"Time to first token improves by less than 5%: {says}.", _more(found, BETTER))


def _guard(compared: Compared, outcome: Outcome) -> Iterator[Missing]:
    found = compared.outcomes.get(outcome)
    if found is None:
        yield Missing(outcome.value, f"{outcome.words.capitalize()} cannot be compared.")
    elif found.standing is not Standing.MET and found.effect is not None:
        says = ranged(outcome, found.effect.delta, found.interval)
        limit = found.limit
        yield Missing(outcome.value, f"{outcome.words}: {says}, limit {limit.words}.", _more(found, limit.worst))


def _more(found: Estimate, threshold: float) -> int | None:
    assert found.effect is not None, "what has no effect is met"
    return more_treated(found.effect, threshold, found.alpha) if found.effect.varies else None
