# SPDX-License-Identifier: Apache-2.0
"""The judge's pass: what has matured is measured and written down, once and for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

from sqlalchemy import Connection, select

from kvflags.flags import Phase
from kvflags_collector.judge import blocks, hours, restart, strata
from kvflags_collector.judge.conclude import conclude
from kvflags_collector.judge.hours import HOUR_US, Window
from kvflags_collector.judge.measure import enough, measure
from kvflags_collector.judge.moments import Moment, moments
from kvflags_collector.rollout import flags
from kvflags_collector.store.database import Database
from kvflags_collector.store.frozen_tables import frozen_events
from kvflags_collector.store.roles import Role, Term
from kvflags_collector.verdict.placebo import HORIZONS
from kvflags_collector.worker import Worker

__all__ = ["Judge", "judge"]

# Spans may come that much later and still count.
_GRACE_US = 24 * HOUR_US
# Events of one pass: about a second's work.
_MOST = 100
# Small rows: those of 35 deployments that are watched from their baseline on, or of 5,000 that go on.
_MOST_BLOCKS = 5000

Write = Callable[[], AbstractContextManager[Connection]]


def judge(db: Database, now: int, write: Write | None = None) -> int:
    """Freeze what has matured by `now` (microseconds); how many rows that were. At most 100: the rest is next.

    Idempotent: what is frozen stays as it is, whatever arrives later. What is not yet rolled up waits.
    """
    with db.read() as conn:
        rows = [row for _, row in zip(range(_MOST), _due(conn, now), strict=False)]
        own = _blocks(conn, now)
    if rows or own:
        with (write or db.write)() as conn:
            _insert(conn, rows)
            blocks.insert(conn, own)
    return len(rows)


class Judge(Worker):
    """The thread that freezes and judges, in whichever collector is the judge."""

    def __init__(
        self, db: Database, *, clock: Callable[[], int], holder: str | None = None, every_s: float = 60.0
    ) -> None:
        def work(term: Term) -> float | None:
            if judge(db, clock(), term.write) == _MOST:
                return 0.0
            conclude(db, clock(), term.write)
            return None

        super().__init__(db, Role.JUDGE, work, clock=clock, holder=holder, every_s=every_s)


def _due(conn: Connection, now: int) -> Iterator[dict[str, Any]]:
    """Rows to be written, the oldest event of a flag first."""
    known = strata.read(conn)
    for flag in flags.by_feature(conn).values():
        if flag.phase == Phase.DRAFT:
            continue
        done = _frozen(conn, flag.key)
        for moment in sorted(moments(conn, flag.key), key=lambda one: (one.event_us, one.deployment)):
            for horizon in HORIZONS:
                window = Window(moment, horizon)
                if (moment.deployment, moment.event_us, horizon) not in done and _ripe(conn, window, now):
                    yield _row(conn, window, known, now)


def _blocks(conn: Connection, now: int) -> list[dict[str, Any]]:
    """The error guard's blocks of every flag that are over, in order; what is beyond a pass's share is next."""
    known = [flag for flag in flags.by_feature(conn).values() if flag.phase != Phase.DRAFT]
    over = (row for flag in known for row in blocks.due(conn, flag.key, moments(conn, flag.key), now))
    return list(islice(over, _MOST_BLOCKS))


def _ripe(conn: Connection, window: Window, now: int) -> bool:
    """Whether its last hour is over for good and everything before is rolled up."""
    return window.end_us + _GRACE_US <= now and hours.rolled_up(conn, window.moment.deployment, window.end_us)


def _row(conn: Connection, window: Window, known: strata.Strata, now: int) -> dict[str, Any]:
    moment = window.moment
    seen = hours.read(conn, window)
    stratum = known.get((moment.deployment, moment.generation), strata.UNKNOWN)
    return {
        "flag": moment.flag,
        "deployment": moment.deployment,
        "event_us": moment.event_us,
        "horizon": window.horizon,
        "generation": moment.generation,
        "epoch": moment.epoch,
        "treated": moment.treated,
        "cohort": moment.cohort,
        "stratum": stratum,
        "left_out": _left_out(moment, stratum, known) or (None if enough(seen) else "too_little_seen"),
        "measured": measure(seen) | {"restart": restart.cost(conn, window)},
        "recorded_us": now,
    }


def _left_out(moment: Moment, stratum: str, known: strata.Strata) -> str | None:
    """What changed together with the treatment cannot be told from it."""
    if moment.previous is None:
        return "no_baseline"
    before = known.get((moment.deployment, moment.previous))
    return "changed" if before is not None and before != stratum else None


def _frozen(conn: Connection, flag: str) -> set[tuple[str, int, int]]:
    c = frozen_events.c
    query = select(c.deployment, c.event_us, c.horizon).where(c.flag == flag)
    return {(deployment, event_us, horizon) for deployment, event_us, horizon in conn.execute(query)}


def _insert(conn: Connection, rows: list[dict[str, Any]]) -> None:
    """Without those that another judge has written since they were read."""
    done = {flag: _frozen(conn, flag) for flag in {row["flag"] for row in rows}}
    fresh = [row for row in rows if (row["deployment"], row["event_us"], row["horizon"]) not in done[row["flag"]]]
    if fresh:
        conn.execute(frozen_events.insert(), fresh)
