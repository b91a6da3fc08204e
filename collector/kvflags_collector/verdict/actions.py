# SPDX-License-Identifier: Apache-2.0
"""What a verdict asks the rollout to do by itself, each with the numbers it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from math import exp
from typing import Any

from kvflags_collector.verdict import harm
from kvflags_collector.verdict.compare import Compared, Estimate, Standing
from kvflags_collector.verdict.decide import Verdict, VerdictState
from kvflags_collector.verdict.evidence import Inputs
from kvflags_collector.verdict.outcomes import PRIMARY, Outcome, Role

__all__ = ["Act", "Action", "actions"]


class Act(StrEnum):
    """take_out: one deployment goes back to control and the ramp holds. hold: the ramp waits for a person.

    roll_back: a stratum is switched off, the others go on. abort: the whole rollout ends.
    """

    TAKE_OUT = "take_out"
    HOLD = "hold"
    ROLL_BACK = "roll_back"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """subject: the deployment or stratum, empty for the fleet. value, limit, interval: relative changes as ratios.

    n: what the value rests on: treated events, or transfers. since_us, until_us: the first and the last of it.
    """

    act: Act
    metric: str
    says: str
    value: float
    limit: float
    n: int
    subject: str = ""
    interval: tuple[float, float] | None = None
    since_us: int | None = None
    until_us: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def actions(inputs: Inputs, found: Verdict) -> list[Action]:
    """In the order of weight: what ends everything first. Nothing that is acknowledged, and nothing from doubt."""
    asked: list[Action] = []
    if found.state is VerdictState.REGRESSION:
        asked += _aborts(inputs, found)
    asked += _taken_out(inputs)
    if found.state not in {VerdictState.REGRESSION, VerdictState.INVALID}:
        asked += _held(inputs, found.compared)
    return asked


def _aborts(inputs: Inputs, found: Verdict) -> Iterator[Action]:
    fired, treated = len(inputs.fires), inputs.number(treated=True)
    if harm.too_many(fired, treated):
        says = f"the error guard fired in {fired} of {treated} treated deployments"
        limit = max(harm.MANY, harm.SHARE * treated)
        yield Action(act=Act.ABORT, metric="guards_fired", says=says, value=fired, limit=limit, n=treated)
    estimates = [found.failures, *_slower(found.compared)]
    for one in estimates:
        if one is not None and one.effect is not None and one.outcome.value in found.reasons:
            # The guard against failures asks whether there are more of them at all, not whether the limit is passed.
            limit = 0.0 if one.outcome is Outcome.FAILED_TRANSFERS else one.limit.worst
            yield _about(one, Act.ABORT, inputs, limit=limit)


def _slower(compared: Compared | None) -> list[Estimate | None]:
    names = (PRIMARY, Outcome.INTER_TOKEN_LATENCY)
    return [compared.outcomes.get(name) for name in names] if compared is not None else []


def _taken_out(inputs: Inputs) -> Iterator[Action]:
    for fire in inputs.fires:
        if not fire.acknowledged:
            yield Action(
                act=Act.TAKE_OUT,
                metric="error_guard",
                says=f"{fire.deployment}: {fire.says}",
                value=fire.value,
                limit=fire.limit,
                n=fire.n,
                subject=fire.deployment,
                since_us=fire.since_us,
                until_us=fire.until_us,
            )


def _held(inputs: Inputs, compared: Compared | None) -> Iterator[Action]:
    for alone in harm.worse_alone(inputs, compared):
        yield Action(
            act=Act.HOLD,
            metric="deployment",
            says=harm.alone_says(alone),
            value=_change(alone.change),
            limit=0.0,
            n=alone.controls,
            subject=alone.deployment,
            interval=(_change(alone.low), _change(alone.high)),
            since_us=alone.since_us,
            until_us=alone.until_us,
        )
    if compared is None:
        return
    for name, found in harm.worse_strata(inputs, compared):
        yield _about(found, Act.ROLL_BACK, inputs, subject=name)
    for one in compared.outcomes.values():
        if one.limit.role in (Role.GUARD, Role.WATCHED) and one.standing is Standing.BROKEN and one.effect is not None:
            yield _about(one, Act.HOLD, inputs)


def _about(one: Estimate, act: Act, inputs: Inputs, *, subject: str = "", limit: float | None = None) -> Action:
    assert one.effect is not None, "only an effect can be acted upon"
    at = _treated_at(inputs, subject)
    says = harm.worse(one)
    return Action(
        act=act,
        metric=one.outcome.value,
        says=f"{subject}: {says}" if subject else says,
        value=_change(one.effect.delta),
        limit=_change(one.limit.worst if limit is None else limit),
        n=one.effect.treated,
        subject=subject,
        interval=(_change(one.interval.low), _change(one.interval.high)),
        since_us=min(at, default=None),
        until_us=max(at, default=None),
    )


def _treated_at(inputs: Inputs, stratum: str) -> Sequence[int]:
    """When the treated events were, of one stratum where one is named."""
    events = inputs.events
    if events is None or events.event_us is None:
        return []
    rows = events.treated.copy()
    if stratum:
        rows &= events.stratum == events.strata.index(stratum)
    found: list[int] = events.event_us[rows].tolist()
    return found


def _change(log_ratio: float) -> float:
    return round(exp(min(log_ratio, 50.0)) - 1, 6)
