# SPDX-License-Identifier: Apache-2.0
"""What is worse with the feature: rows 1, 2, 4 and 5 of the decision table."""

from __future__ import annotations

from collections.abc import Iterator

from kvflags_collector.verdict.compare import Compared, Estimate, Standing
from kvflags_collector.verdict.effect import Interval
from kvflags_collector.verdict.evidence import Alone, Inputs
from kvflags_collector.verdict.outcomes import PRIMARY, Outcome, Role
from kvflags_collector.verdict.placebo import DeploymentVerdict
from kvflags_collector.verdict.words import Finding, count, ranged

__all__ = [
    "MANY",
    "SHARE",
    "alone_says",
    "failing",
    "held",
    "slower",
    "too_many",
    "worse",
    "worse_alone",
    "worse_strata",
]

# So many deployments whose guard fired, and this share of the treated, are the fleet's affair.
MANY, SHARE = 3, 0.2


def failing(inputs: Inputs, failures: Estimate | None) -> Iterator[Finding]:
    """Row 2: transfers fail more often in the treated arm, or in too many of its deployments."""
    back = f"Roll back: kvflags rollout abort {inputs.key}"
    if failures is not None and failures.effect is not None and failures.interval.low > 0:
        says = ranged(failures.outcome, failures.effect.delta, failures.interval)
        yield Finding("failed_transfers", f"Transfers fail more often with the feature: {says}.", back)
    fired, treated = len(inputs.fires), inputs.number(treated=True)
    if too_many(fired, treated):
        says = f"The error guard fired in {fired} of {count(treated, 'treated deployment')}."
        yield Finding("guards_fired", says, back)


def too_many(fired: int, treated: int) -> bool:
    """Whether so many guards fired that it is the fleet's affair."""
    return fired >= MANY and fired >= SHARE * treated


def slower(inputs: Inputs, compared: Compared) -> Iterator[Finding]:
    """Row 4: time to first token is worse, or inter-token latency is worse than its limit."""
    for outcome in (PRIMARY, Outcome.INTER_TOKEN_LATENCY):
        found = compared.outcomes.get(outcome)
        if found is not None and found.effect is not None and found.standing is Standing.BROKEN:
            yield Finding(outcome.value, worse(found), f"Roll back: kvflags rollout abort {inputs.key}")


def held(inputs: Inputs, compared: Compared | None) -> Iterator[Finding]:
    """Rows 1 and 5, and any other limit that is broken: the ramp stops until somebody has looked."""
    yield from _deployments(inputs, compared)
    if compared is None:
        return
    for name, found in worse_strata(inputs, compared):
        next_ = f"Roll back this stratum (kvflags rollout set {inputs.key} 0% --backend NAME); others may go on."
        yield Finding("stratum_regression", f"{name}: {worse(found)}", next_)
    for one in compared.outcomes.values():
        if one.limit.role in (Role.GUARD, Role.WATCHED) and one.standing is Standing.BROKEN and one.effect is not None:
            yield Finding(one.outcome.value, worse(one), "Find out what costs this, or roll back.")


def _deployments(inputs: Inputs, compared: Compared | None) -> Iterator[Finding]:
    for fire in inputs.fires:
        if not fire.acknowledged:
            next_ = f"Find out why {fire.deployment} failed, then acknowledge it."
            yield Finding("guard_fired", f"{fire.deployment}: {fire.says}", next_)
    for deployment in inputs.canaries:
        says = f"{deployment}: the canary's logprobs differ from those of a local prefill."
        yield Finding("canary_mismatch", says, f"Compare the answers of {deployment} before anything else.")
    for alone in worse_alone(inputs, compared):
        next_ = f"Find out what {alone.deployment} has of its own, then go on: kvflags rollout resume {inputs.key}"
        yield Finding("deployment_negative", f"{alone_says(alone)}.", next_)


def worse_alone(inputs: Inputs, compared: Compared | None) -> Iterator[Alone]:
    """Deployments that got worse by themselves, unless their whole stratum did."""
    strata = {*inputs.rolled_back, *(name for name, _ in worse_strata(inputs, compared))} if compared else set()
    for one in inputs.alone:
        if one.verdict is DeploymentVerdict.NEGATIVE and not one.acknowledged and one.stratum not in strata:
            yield one


def worse_strata(inputs: Inputs, compared: Compared) -> Iterator[tuple[str, Estimate]]:
    """What is proven to be worse, by the stratum; without those that are rolled back."""
    for stratum in compared.strata:
        found = (one for one in stratum.outcomes.values() if one.standing is Standing.BROKEN and one.effect)
        if stratum.name not in inputs.rolled_back and (worst := next(found, None)) is not None:
            yield stratum.name, worst


def alone_says(alone: Alone) -> str:
    """One deployment's own verdict, in words."""
    says = ranged(PRIMARY, alone.change, Interval(alone.low, alone.high))
    return f"{alone.deployment}: time to first token {says}, beyond what {alone.controls} controls do by themselves"


def worse(found: Estimate) -> str:
    """What got worse, by how much, and beyond which limit."""
    assert found.effect is not None, "without an effect nothing is broken"
    says = ranged(found.outcome, found.effect.delta, found.interval)
    return f"{found.outcome.words[0].upper()}{found.outcome.words[1:]} got worse: {says}, limit {found.limit.words}."
