# SPDX-License-Identifier: Apache-2.0
"""Engines whose clock is wrong: measured by heartbeats, and their transfers counted in the minute they really began.

Raw spans keep the time they came with, or a retry would not be known again; what is corrected is the minute. Durations
need no correction. An error below a second is left: a minute here or there makes no difference to any figure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from sqlalchemy import Connection, bindparam, delete, select

from kvflags_collector.store.rollup_tables import clock_skews
from kvflags_collector.times import SECOND

__all__ = ["Clock", "clocks", "estimate", "note", "true_minutes"]

_MINUTE_US = 60 * SECOND
# Between an engine's reading of its clock and ours lies the way here: delays only make its clock look late, so the
# highest of many heartbeats is the best. One that is lower still was a step back: a machine that stood still for 20 s
# hands us heartbeats 20 s old, and a clock that is set back by less than a minute matters to no figure.
_LONGEST_WAY_US = 60 * SECOND
# And quartz that nobody disciplines drifts by up to 100 ppm: 3 ms in the 30 s between heartbeats.
_DRIFT_US = 3_000
# What is corrected: well above the way here on a good network, well below a minute.
_MATTERS_US = SECOND
_C = clock_skews.c
# Built once: every heartbeat asks it.
_LAST = select(_C.skew_us).where(_C.engine_id == bindparam("engine_id")).order_by(_C.since_us.desc()).limit(1)


@dataclass(frozen=True, slots=True)
class Clock:
    """An engine's clock was `skew_us` ahead for what was received in [since_us, until_us)."""

    engine_id: str
    deployment: str
    skew_us: int
    since_us: int
    until_us: float

    def dates(self, engine_id: str, received_us: int) -> bool:
        """Whether a span that came from this engine then was dated by it."""
        return engine_id == self.engine_id and self.since_us <= received_us < self.until_us


def estimate(before_us: int | None, clock_us: int, now_us: int) -> int:
    """How far ahead a clock is that showed `clock_us` in a heartbeat received at `now_us`; `before_us`: by the last."""
    shown = clock_us - now_us
    if before_us is None or shown < before_us - _LONGEST_WAY_US:
        return shown
    return max(shown, before_us - _DRIFT_US)


def note(conn: Connection, engine_id: str, deployment: str, skew_us: int, now_us: int) -> Sequence[int]:
    """From now on, correct this engine by this much. Writes only where it is a second off what is corrected by already.

    Returns the minutes that spans received just now, before all collectors see the change, may have been counted in.
    """
    last = conn.scalar(_LAST, {"engine_id": engine_id}) or 0
    skew_us = skew_us if abs(skew_us) >= _MATTERS_US else 0
    if abs(skew_us - last) < _MATTERS_US:
        return ()
    row = {"engine_id": engine_id, "deployment": deployment, "since_us": now_us, "skew_us": skew_us}
    # Two heartbeats within a microsecond, or while our own clock stands still: the later one counts.
    conn.execute(delete(clock_skews).where(_C.engine_id == engine_id, _C.since_us == now_us))
    conn.execute(clock_skews.insert().values(row))
    recent = range(now_us // _MINUTE_US * _MINUTE_US - _MINUTE_US, now_us + 1, _MINUTE_US)
    return sorted({(at + wrong) // _MINUTE_US * _MINUTE_US for at in recent for wrong in (0, last, skew_us)})


def clocks(conn: Connection, deployments: Iterable[str]) -> list[Clock]:
    """The wrong clocks of these deployments; empty in a fleet that keeps time."""
    c = clock_skews.c
    rows = select(c.engine_id, c.deployment, c.skew_us, c.since_us).where(c.deployment.in_(set(deployments)))
    engines: dict[str, list[tuple[str, str, int, int]]] = defaultdict(list)
    for row in conn.execute(rows.order_by(c.engine_id, c.since_us)):
        engines[row.engine_id].append(tuple(row))
    return [Clock(*row, until_us=until) for rows in engines.values() for row, until in _until(rows) if row[2]]


def true_minutes(conn: Connection, minutes: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
    """(minute_us, deployment) by the spans' own dates, and with them the minutes in which such spans really began."""
    given = set(minutes)
    for clock in clocks(conn, {deployment for _, deployment in given}):
        for minute, deployment in list(given):
            if deployment == clock.deployment:
                first = (minute - clock.skew_us) // _MINUTE_US * _MINUTE_US
                # Off by a part of a minute, a minute by its date lies in two.
                given |= {(first, deployment), (first + _MINUTE_US, deployment)}
    return given


def _until(rows: list[tuple[str, str, int, int]]) -> Iterator[tuple[tuple[str, str, int, int], float]]:
    for row, following in pairwise(rows):
        yield row, following[3]
    yield rows[-1], inf
