# SPDX-License-Identifier: Apache-2.0
"""Who is treated when, and which events that makes, in both arms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvflags_collector.verdict.arrays import Bools, Floats, Ints
from kvflags_collector.verdict.events import AFTER_DAYS
from kvflags_collector.verdict.simulate.fleet import Fleet
from kvflags_collector.verdict.simulate.plan import BASELINE_DAYS, Plan

__all__ = ["NEVER", "Exposure", "expose"]

NEVER = 10**6
# Cohorts of steps are numbered from 0, those of arrivals from here: by stage and week.
_ARRIVALS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """One event a row, ordered by day. since: (n,) the day from which each deployment is treated, or NEVER.

    probability: of being treated, as drawn. whole: its three days were not cut short by a later treatment.
    """

    deployment: Ints
    day: Ints
    cohort: Ints
    treated: Bools
    probability: Floats
    whole: Bools
    since: Ints


def expose(plan: Plan, fleet: Fleet) -> Exposure:
    """At each step every control that was observed for 7 days is drawn; whoever comes later is drawn once then."""
    since = np.full(len(fleet.arrived), NEVER)
    rows = [_step(plan, index, fleet, since) for index, (day, _) in enumerate(plan.ramp) if day < plan.end]
    rows.append(_arrivals(plan, fleet, since))
    deployment, day, cohort, probability, treated = (np.concatenate(column) for column in zip(*rows, strict=True))
    order = np.lexsort((deployment, day))
    deployment, day, treated = deployment[order], day[order], treated[order] > 0
    whole = treated | (since[deployment] >= day + AFTER_DAYS)
    return Exposure(
        deployment=deployment,
        day=day,
        cohort=cohort[order],
        treated=treated,
        probability=probability[order],
        whole=whole & (day + AFTER_DAYS <= plan.end),
        since=since,
    )


_Rows = tuple[Ints, Ints, Ints, Floats, Ints]


def _step(plan: Plan, index: int, fleet: Fleet, since: Ints) -> _Rows:
    ready, day = fleet.arrived + BASELINE_DAYS, plan.ramp[index][0]
    before, after = plan.share(day - 1), plan.share(day)
    # Those who arrived since the last step were drawn when they were ready, with the share of that day.
    drawn = np.flatnonzero((ready < day + (index == 0)) & (fleet.lot >= before))
    treated = fleet.lot[drawn] < after
    since[drawn[treated]] = day
    return _rows(drawn, np.full(len(drawn), day), index, np.full(len(drawn), plan.steps()[index][1]), treated)


def _arrivals(plan: Plan, fleet: Fleet, since: Ints) -> _Rows:
    ready = fleet.arrived + BASELINE_DAYS
    steps = [day for day, _ in plan.ramp]
    late = np.flatnonzero((ready > steps[0]) & (ready < plan.end))
    day = ready[late]
    share = np.array([plan.share(int(one)) for one in day])
    treated = fleet.lot[late] < share
    since[late[treated]] = day[treated]
    stage = np.searchsorted(steps, day, side="right")
    return _rows(late, day, _ARRIVALS + 100 * stage + day // 7, share, treated)


def _rows(deployment: Ints, day: Ints, cohort: Ints | int, probability: Floats, treated: Bools) -> _Rows:
    return deployment, day, np.broadcast_to(cohort, day.shape), probability, treated.astype(np.int64)
