# SPDX-License-Identifier: Apache-2.0
"""One simulated rollout: a fleet is drawn, exposed and frozen, and judged on every day that could change anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kvflags_collector.verdict import errors
from kvflags_collector.verdict.arrays import Bools, Floats, Ints
from kvflags_collector.verdict.decide import Verdict, VerdictState, verdict
from kvflags_collector.verdict.errors import BASELINE_BLOCKS
from kvflags_collector.verdict.events import AFTER_DAYS, BEFORE_DAYS, Events, change, complete
from kvflags_collector.verdict.evidence import Check, Fire, Inputs, Trials
from kvflags_collector.verdict.outcomes import Outcome
from kvflags_collector.verdict.simulate.exposure import Exposure, expose
from kvflags_collector.verdict.simulate.fleet import Fleet, draw
from kvflags_collector.verdict.simulate.guards import Guards, windows
from kvflags_collector.verdict.simulate.plan import BLOCKS_A_DAY, FIRST_LOOK, STRATA, Plan
from kvflags_collector.verdict.treatment import Treatment

__all__ = ["Ended", "Rollout", "freeze", "reporting", "simulate"]

# A rollout is over with these; any other state may still change.
_FINAL = (VerdictState.REGRESSION, VerdictState.READY)
_NAMES = tuple(name for name, _ in STRATA)


@dataclass(frozen=True, slots=True)
class Ended:
    """state: at the end. day: since the first exposure, from which it held."""

    state: VerdictState
    reason: str
    day: int
    scope: tuple[str, ...] = ()


def simulate(plan: Plan, seed: int, number: int) -> Ended:
    """The end of one rollout. The same plan, seed and number give the same end, in whatever order they are run."""
    rollout = Rollout(plan, np.random.default_rng([seed, number]))
    last: Ended | None = None
    for day in rollout.looks():
        found = rollout.look(day)
        if last is None or last.state != found.state:
            last = Ended(found.state, found.reason, day - plan.ramp[0][0], found.scope)
        if found.state in _FINAL:
            break
    assert last is not None, "there is a look on the first day"
    return last


class Rollout:
    """One fleet with everything that is ever frozen of it; a look sees what had matured by then."""

    def __init__(self, plan: Plan, rng: np.random.Generator) -> None:
        self._plan = plan
        self.fleet = draw(plan, rng)
        self.exposure = expose(plan, self.fleet)
        self._reporting = reporting(plan, self.fleet, self.exposure)
        failed = self.fleet.errors + np.where(_treated(self.fleet, self.exposure), self.fleet.excess, 0.0)
        self.guards = Guards(failed, self.fleet.transfers, self.exposure)
        self.events, self.matured = freeze(self.fleet, self.exposure, failed, self._reporting)

    def looks(self) -> Iterator[int]:
        """Days on which the verdict can differ from that of the day before; the others would only repeat it."""
        days = range(FIRST_LOOK, self._plan.end)
        fired = [frozenset(self.guards.fired(day).tolist()) for day in range(FIRST_LOOK - 2, self._plan.end)]
        # What fired is acknowledged a day later, so both days count.
        changed = {day for day, *three in zip(days, fired, fired[1:], fired[2:], strict=False) if len(set(three)) > 1}
        changed |= {FIRST_LOOK, self._plan.quarter_from + 7, *self.matured.tolist()}
        yield from (day for day in days if day in changed)

    def look(self, day: int) -> Verdict:
        """The verdict at the start of a day."""
        return verdict(self.inputs(day))

    def inputs(self, day: int) -> Inputs:
        """What is known at the start of a day. A guard that fired is acknowledged within the day."""
        began = (self.exposure.day < day) & self._reporting
        fired = self.guards.fired(day)
        before = set(self.guards.fired(day - 1).tolist())
        return Inputs(
            key="simulated",
            running=True,
            deployments=_deployments(self.fleet, self.exposure, began),
            days=float(max(0, day - self._plan.quarter_from)),
            outcomes=True,
            events=self.events.where(self.matured <= day),
            fires=[Fire(deployment=f"d{one}", says="fails more", acknowledged=one in before) for one in fired.tolist()],
            trials={Check.ASSIGNMENT: Trials(self.exposure.probability[began], self.exposure.treated[began])},
        )


def reporting(plan: Plan, fleet: Fleet, exposure: Exposure) -> Bools:
    """(events,): whether anything is heard after the event; of the treated, `plan.lost` are not."""
    return ~((fleet.reports[exposure.deployment] < plan.lost) & exposure.treated)


def _treated(fleet: Fleet, exposure: Exposure) -> Bools:
    """(n, blocks): whether the treatment is on."""
    blocks = np.arange(fleet.errors.shape[1])
    return np.asarray(blocks >= exposure.since[:, None] * BLOCKS_A_DAY)


def freeze(fleet: Fleet, exposure: Exposure, failed: Floats, reporting: Bools) -> tuple[Events, Ints]:
    """The events that count, and the day on which each was frozen."""
    seen = [
        windows(values, exposure.deployment, exposure.day, AFTER_DAYS * BLOCKS_A_DAY)
        for values in (failed, fleet.transfers)
    ]
    (e0, n0), (e1, n1) = (
        [one[:, part] for one in seen] for part in (slice(None, BASELINE_BLOCKS), slice(BASELINE_BLOCKS, None))
    )
    kept = exposure.whole & reporting
    kept[kept] = complete(n0[kept], n1[kept])
    who, day = exposure.deployment[kept], exposure.day[kept]
    shift = np.where(exposure.treated[kept], fleet.effect[who], 0.0)
    step = np.where(exposure.treated[kept], fleet.inter_token_effect, 0.0)
    values = {
        Outcome.TIME_TO_FIRST_TOKEN: _changes(fleet.latency, who, day) + shift,
        Outcome.INTER_TOKEN_LATENCY: _changes(fleet.inter_token, who, day) + step,
        Outcome.OUTPUT_TOKENS: _changes(fleet.output, who, day),
        Outcome.FAILED_TRANSFERS: errors.log_ratio((e0[kept], n0[kept]), (e1[kept], n1[kept])),
        Outcome.KV_BLOCKS: np.zeros(len(who)),
    }
    events = Events(
        deployment=who,
        cohort=exposure.cohort[kept],
        stratum=fleet.stratum[who],
        treated=exposure.treated[kept],
        values=values,
        failures=e0[kept].sum(axis=1) + e1[kept].sum(axis=1),
        strata=_NAMES,
    )
    return events, day + AFTER_DAYS


def _changes(values: Floats, deployment: Ints, day: Ints) -> Floats:
    columns = day[:, None] + np.arange(-BEFORE_DAYS, AFTER_DAYS)
    seen = values[deployment[:, None], columns]
    return change(seen[:, :BEFORE_DAYS], seen[:, BEFORE_DAYS:])


def _deployments(fleet: Fleet, exposure: Exposure, began: Bools) -> list[Treatment]:
    """Each deployment that was exposed, in the arm of its latest event."""
    latest = dict(zip(exposure.deployment[began].tolist(), exposure.treated[began].tolist(), strict=True))
    return [
        Treatment(
            deployment=f"d{one}",
            generation="simulated",
            treated=treated,
            stratum=_NAMES[fleet.stratum[one]],
            effective=treated,
        )
        for one, treated in latest.items()
    ]
