# SPDX-License-Identifier: Apache-2.0
"""How long what is stored is kept, and the maintainer that takes the rest away, a bounded piece at a time.

Decisions, flags, frozen events, the audit log, days and months are kept for good: they are small, and a past report is
read from them. What others are made of goes only after those are made: raw spans after minutes, minutes after hours.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, Table, delete, func, select, update

from kvflags_collector.store import partitions
from kvflags_collector.store import rollup_tables as tables
from kvflags_collector.store.database import Database
from kvflags_collector.store.outcome_tables import events, outcomes_hour
from kvflags_collector.store.roles import Role, Term
from kvflags_collector.store.spans import SEEN_TO_US
from kvflags_collector.store.telemetry_tables import resources, spans
from kvflags_collector.times import SECOND
from kvflags_collector.worker import Worker

__all__ = ["LEAST", "Maintainer", "Retention", "maintain"]

_DAY_US = 86_400 * SECOND
# Ingest takes spans and outcomes that are up to 7 days old, by a clock that may be off by as much as an hour.
_ACCEPTED_US = 8 * _DAY_US
# Rows of one transaction: about 10 ms of deleting by time. Everybody who writes waits that long.
_ROWS = 10_000
# Of SQLite's free pages, 4 KiB each, given back in a pass.
_PAGES = 1_000

Write = Callable[[], AbstractContextManager[Connection]]


@dataclass(frozen=True, slots=True)
class Retention:
    """In days. raw: spans. minutes: roll-ups by the minute, and events. hours: those by the hour, and presence."""

    raw: float = 15
    minutes: float = 90
    hours: float = 730


# A minute is made anew while spans of it may come, and a day more for the roller to do it; an event is judged on the
# hours of its deployment from weeks before to two weeks after it.
LEAST = Retention(raw=9, minutes=9, hours=90)


def maintain(db: Database, now_us: int, keep: Retention | None = None, write: Write | None = None) -> bool:
    """One pass; whether all that is past its time is gone. Blocks; harmless to run twice or beside another."""
    write = write or db.append
    with db.read() as conn:
        raw_us, minutes_us, hours_us = _ends(conn, now_us, keep or Retention())
    if db.engine.dialect.name == "postgresql":
        done = _drop_day(write, raw_us, now_us)
    else:
        done = _clear(write, spans.c.start_ns, raw_us * 1000)
    for column, until_us in (
        (tables.rollups_minute.c.minute_us, minutes_us),
        (events.c.time_us, minutes_us),
        (tables.rollups_hour.c.hour_us, hours_us),
        (outcomes_hour.c.hour_us, hours_us),
        (tables.presence.c.hour_us, hours_us),
    ):
        done &= _clear(write, column, until_us)
    with db.read() as conn:
        resources_us = _unused(conn, now_us)
    done &= _clear(write, resources.c.seen_us, resources_us)
    with write() as conn:
        _forget_points(conn, now_us - _ACCEPTED_US)
        _give_back(conn)
    return done


class Maintainer(Worker):
    """The thread that does so every ten minutes, and without a rest while much is to go, in one of the collectors."""

    def __init__(
        self,
        db: Database,
        keep: Retention,
        *,
        clock: Callable[[], int],
        holder: str | None = None,
        every_s: float = 600.0,
    ) -> None:
        def work(term: Term) -> float | None:
            # A tenth of a second between pieces, for those who want to write.
            return None if maintain(db, clock(), keep, term.write) else 0.1

        super().__init__(db, Role.MAINTAINER, work, clock=clock, holder=holder, every_s=every_s)


def _ends(conn: Connection, now_us: int, keep: Retention) -> tuple[int, int, int]:
    """Until when raw spans, minutes and hours may go, in microseconds: not before what they are made into."""

    def end(days: float, dirty: Column[int], ahead_us: int = 0) -> int:
        oldest = conn.scalar(select(func.min(dirty)))
        until_us = now_us - round(days * _DAY_US)
        return until_us if oldest is None else min(until_us, oldest - ahead_us)

    return (
        # By a wrong clock, a minute's spans may be dated elsewhere.
        end(keep.raw, tables.dirty_minutes.c.minute_us, _ACCEPTED_US),
        end(keep.minutes, tables.dirty_hours.c.hour_us),
        end(keep.hours, tables.dirty_days.c.day_us),
    )


def _unused(conn: Connection, now_us: int) -> int:
    """A resource that came last before this time has no span any more: the first that is kept came later."""
    first_ns = conn.scalar(select(func.min(spans.c.start_ns)))
    # A span that ingest takes began at most an hour after it came.
    return (now_us if first_ns is None else first_ns // 1000) - SEEN_TO_US - 3600 * SECOND


def _drop_day(write: Write, until_us: int, now_us: int) -> bool:
    """The oldest day of spans, where it is over; and make tomorrow's table before its first span comes."""
    with write() as conn:
        today = now_us // _DAY_US
        partitions.ensure(conn, (today, today + 1))
        past = [day for day in partitions.days(conn) if (day + 1) * _DAY_US <= until_us]
        if past:
            partitions.drop(conn, past[0])
    return len(past) <= 1


def _clear(write: Write, column: Column[Any], until: int) -> bool:
    """Delete what is before `until`, about 10,000 rows at most; whether that was all. `column` begins an index."""
    table: Table = column.table
    with write() as conn:
        next_piece = select(column).where(column < until).order_by(column).offset(_ROWS).limit(1)
        edge: int | None = conn.scalar(next_piece)
        conn.execute(delete(table).where(column < until if edge is None else column <= edge))
    return edge is None


def _forget_points(conn: Connection, until_us: int) -> None:
    """Which exports an hour is made of matters only while they could be sent again."""
    c = outcomes_hour.c
    conn.execute(update(outcomes_hour).where(c.hour_us < until_us, c.seen.is_not(None)).values(seen=None))


def _give_back(conn: Connection) -> None:
    """Free pages of an SQLite file to the file system; the file would never shrink otherwise."""
    if conn.dialect.name != "sqlite":
        return
    free = conn.exec_driver_sql("PRAGMA freelist_count").scalar_one()
    for _ in range(min(free, _PAGES)):
        # The driver steps a statement without columns once, and each step gives back one page.
        conn.exec_driver_sql("PRAGMA incremental_vacuum(1)")
