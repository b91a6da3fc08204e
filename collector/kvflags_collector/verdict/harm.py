# SPDX-License-Identifier: Apache-2.0
"""What is worse with the feature: rows 1, 2, 4 and 5 of the decision table."""

from __future__ import annotations

from collections.abc import Iterator

from kvflags_collector.verdict.compare import Compared, Estimate, Standing, Stratum
from kvflags_collector.verdict.evidence import Inputs
from kvflags_collector.verdict.outcomes import PRIMARY, Outcome, Role
from kvflags_collector.verdict.words import Finding, count, ranged

__all__ = ["failing", "held", "slower", "worse_stratum"]

# So many deployments whose guard fired, and this share of the treated, are the fleet's affair.
_MANY, _SHARE = 3, 0.2


def failing(inputs: Inputs, failures: Estimate | None) -> Iterator[Finding]:
    """Row 2: transfers fail more often in the treated arm, or in too many of its deployments."""
    back = f"Roll back: kvflags rollout abort {inputs.key}"
    if failures is not None and failures.effect is not None and failures.interval.low > 0:
        says = ranged(failures.outcome, failures.effect.delta, failures.interval)
        yield Finding("failed_transfers", f"Transfers fail more often with the feature: {says}.", back)
    fired, treated = len(inputs.fires), inputs.number(treated=True)
    if fired >= _MANY and fired >= _SHARE * treated:
        says = f"The error guard fired in {fired} of {count(treated, 'treated deployment')}."
        yield Finding("guards_fired", says, back)


def slower(inputs: Inputs, compared: Compared) -> Iterator[Finding]:
    """Row 4: time to first token is worse, or inter-token latency is worse than its limit."""
    for outcome in (PRIMARY, Outcome.INTER_TOKEN_LATENCY):
        found = compared.outcomes.get(outcome)
        if found is not None and found.effect is not None and found.standing is Standing.BROKEN:
            yield Finding(outcome.value, _worse(found), f"Roll back: kvflags rollout abort {inputs.key}")


def held(inputs: Inputs, compared: Compared | None) -> Iterator[Finding]:
    """Rows 1 and 5, and any other limit that is broken: the ramp stops until somebody has looked."""
    for fire in inputs.fires:
        if not fire.acknowledged:
            next_ = f"Find out why {fire.deployment} failed, then acknowledge it."
            yield Finding("guard_fired", f"{fire.deployment}: {fire.says}", next_)
    for deployment in inputs.canaries:
        says = f"{deployment}: the canary's logprobs differ from those of a local prefill."
        yield Finding("canary_mismatch", says, f"Compare the answers of {deployment} before anything else.")
    if compared is None:
        return
    for stratum in compared.strata:
        if (found := worse_stratum(stratum)) is not None:
            next_ = f"Roll back this stratum (kvflags rollout set {inputs.key} 0% --backend NAME); others may go on."
            yield Finding("stratum_regression", f"{stratum.name}: {_worse(found)}", next_)
    for one in compared.outcomes.values():
        if one.limit.role in (Role.GUARD, Role.WATCHED) and one.standing is Standing.BROKEN and one.effect is not None:
            yield Finding(one.outcome.value, _worse(one), "Find out what costs this, or roll back.")


def worse_stratum(stratum: Stratum) -> Estimate | None:
    """What is proven to be worse in a stratum, if anything."""
    return next((one for one in stratum.outcomes.values() if one.standing is Standing.BROKEN and one.effect), None)


def _worse(found: Estimate) -> str:
    assert found.effect is not None, "without an effect nothing is broken"
    says = ranged(found.outcome, found.effect.delta, found.interval)
    return f"{found.outcome.words[0].upper()}{found.outcome.words[1:]} got worse: {says}, limit {found.limit.words}."
