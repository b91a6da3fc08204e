# SPDX-License-Identifier: Apache-2.0
"""Frozen events, read back as the arrays that `verdict` judges. Nothing else is read, so any day can be replayed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import nan
from typing import Any

import numpy as np
from sqlalchemy import Connection, RowMapping, select

from kvflags_collector.judge.blocks import Event, Run
from kvflags_collector.judge.moments import Moment
from kvflags_collector.store.frozen_tables import frozen_events
from kvflags_collector.times import SECOND
from kvflags_collector.verdict import errors
from kvflags_collector.verdict.arrays import Floats
from kvflags_collector.verdict.events import AFTER_DAYS, Events
from kvflags_collector.verdict.evidence import Alone, Check, Fire, Trials
from kvflags_collector.verdict.outcomes import Outcome
from kvflags_collector.verdict.placebo import Placebo, place

__all__ = ["alone", "events", "fires", "left_out", "read"]

Epoch = tuple[str, str, int]
# What guardrails did already: (metric, deployment, time of the event). Whoever let the rollout go on since has seen it.
Acted = Collection[tuple[str, str, int]]
_DAY_US = 86_400 * SECOND


def read(conn: Connection, flag: str, included: Collection[Epoch], as_of_us: int) -> list[RowMapping]:
    """What was frozen by then of the epochs that are (still) in the comparison, in the order of events."""
    c = frozen_events.c
    query = (
        select(frozen_events)
        .where(c.flag == flag, c.recorded_us <= as_of_us)
        .order_by(c.event_us, c.deployment, c.horizon)
    )
    return [
        row
        for row in conn.execute(query).mappings()
        if (row["deployment"], row["generation"], row["epoch"]) in included
    ]


def events(rows: Sequence[RowMapping]) -> Events | None:
    """The valid ones at 3 days, which the effect is estimated from; None without any."""
    kept = [row for row in rows if row["horizon"] == AFTER_DAYS and row["left_out"] is None]
    if not kept:
        return None
    strata = sorted({row["stratum"] for row in kept})
    measured = [row["measured"] for row in kept]
    return Events(
        deployment=_codes([row["deployment"] for row in kept]),
        cohort=_codes([row["cohort"] for row in kept]),
        stratum=np.array([strata.index(row["stratum"]) for row in kept]),
        treated=np.array([row["treated"] for row in kept], dtype=np.bool_),
        values={outcome: _column(measured, "values", outcome.value) for outcome in Outcome},
        failures=np.array([sum(one["failed"]) for one in measured]),
        strata=tuple(strata),
        invariants={name: _column(measured, "invariants", name) for name in ("transfer volume",)},
        event_us=np.array([row["event_us"] for row in kept], dtype=np.int64),
    )


def left_out(rows: Sequence[RowMapping]) -> dict[Check, Trials]:
    """Whether events of one arm are left out more often: each is a trial, at the treated share of all events."""
    own = [row for row in rows if row["horizon"] == AFTER_DAYS]
    out = np.array([row["treated"] for row in own if row["left_out"] is not None], dtype=np.bool_)
    if not len(out):
        return {}
    share = sum(row["treated"] for row in own) / len(own)
    return {Check.LEFT_OUT: Trials(np.full(len(out), share), out)}


def fires(runs: Mapping[Event, Run], found: Sequence[Moment], acted: Acted) -> list[Fire]:
    """Treated deployments whose failures rose beyond what controls show by themselves."""
    begun = {event for event, run in runs.items() if len(run.failed) > errors.BASELINE_BLOCKS}
    watched = [one for one in found if (one.deployment, one.event_us) in begun]
    own = [runs[one.deployment, one.event_us] for one in watched]
    treated = np.array([one.treated for one in watched], dtype=np.bool_)
    if not treated.any():
        return []
    failed, transfers = _padded([one.failed for one in own]), _padded([one.transfers for one in own])
    cut = errors.BASELINE_BLOCKS
    before, after = (failed[:, :cut], transfers[:, :cut]), (failed[:, cut:], transfers[:, cut:])
    highest = errors.evidence(before, after, errors.fleet_dispersion(*before)).max(axis=1)
    limit = errors.threshold(highest[~treated])
    return [
        Fire(
            deployment=one.deployment,
            says=f"Transfers fail more than before: evidence {e:.3g}, limit {limit:.3g}.",
            acknowledged=("error_guard", one.deployment, one.event_us) in acted,
            value=round(e, 6),
            limit=round(limit, 6),
            n=int(runs[one.deployment, one.event_us].transfers[cut:].sum()),
            since_us=one.event_us,
        )
        for one, e in zip(watched, highest.tolist(), strict=True)
        if one.treated and e > limit
    ]


def alone(rows: Sequence[RowMapping], acted: Acted) -> list[Alone]:
    """What each treated deployment's own change says, at the latest horizon that says anything."""
    found: dict[str, Alone] = {}
    for horizon in sorted({row["horizon"] for row in rows}):
        own = _with_days([row for row in rows if row["horizon"] == horizon and row["left_out"] is None])
        if not own:
            continue
        before, after = (np.array([row["measured"]["days"][side] for row in own]) for side in (0, 1))
        treated = np.array([row["treated"] for row in own], dtype=np.bool_)
        placed = place(before, after, treated, _codes([row["cohort"] for row in own]))
        if placed is not None:
            events_of = [row for row in own if row["treated"]]
            found |= {row["deployment"]: _alone(row, placed, at, acted) for at, row in enumerate(events_of)}
    return list(found.values())


def _alone(row: RowMapping, placed: Placebo, at: int, acted: Acted) -> Alone:
    return Alone(
        deployment=row["deployment"],
        verdict=placed.verdicts[at],
        change=float(placed.change[at]),
        low=float(placed.low[at]),
        high=float(placed.high[at]),
        controls=placed.controls,
        stratum=row["stratum"],
        acknowledged=("deployment", row["deployment"], row["event_us"]) in acted,
        since_us=row["event_us"],
        until_us=row["event_us"] + row["horizon"] * _DAY_US,
    )


def _with_days(rows: Sequence[RowMapping]) -> list[RowMapping]:
    """Those with every day known, of each control the latest alone."""
    known = [row for row in rows if not any(None in side for side in row["measured"]["days"])]
    latest = {(row["deployment"], row["treated"]): row for row in known}
    return list(latest.values())


def _padded(values: Sequence[Floats]) -> Floats:
    """(rows, blocks), as long as the longest; what lies beyond has nothing in it."""
    width = max(len(one) for one in values)
    return np.array([np.pad(one, (0, width - len(one))) for one in values])


def _codes(labels: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.asarray(np.unique(np.array(labels), return_inverse=True)[1], dtype=np.int64)


def _column(measured: Sequence[Any], part: str, name: str) -> Floats:
    found = (one[part].get(name) for one in measured)
    return np.array([nan if value is None else value for value in found], dtype=np.float64)
