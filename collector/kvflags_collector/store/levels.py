# SPDX-License-Identifier: Apache-2.0
"""Minutes, hours, days and months: what of each is due to be made anew, and the exchange of its rows. One way for all.

Whoever makes a part anew reads its mark first, then what it is made of, and exchanges the rows only if the mark is
still there. Ingest (for minutes) and each exchange (for the level above) write new marks: nobody's change is undone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Column, Connection, Table, delete, func, insert, select, text, update

from kvflags_collector.store import rollup_tables as tables
from kvflags_collector.store.measures import Measures
from kvflags_collector.store.spans import new_mark
from kvflags_collector.store.transfers import Key
from kvflags_collector.times import SECOND

__all__ = ["DAY", "HOUR", "MINUTE", "MONTH", "Level", "Part", "Rows", "batches", "due", "exchange", "oldest_dirty"]

# A minute after an hour (a day, a month) ended it is merged; until then readers take what it is made of. What comes
# later waits a minute too, for its company.
_SETTLES_US = 60 * SECOND

# {deployment: the mark of its dirty part}
Marks = Mapping[str, int]
Rows = Mapping[Key, Measures]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Level:
    """One size of roll-up. `together`: how many deployments are made anew in one go, which bounds what is in memory."""

    time: str
    length_us: int
    rollups: Table
    dirty: Table
    together: int
    above: Level | None = None

    @property
    def at(self) -> Column[int]:
        """The column of `rollups` with the start of a part."""
        return self.rollups.c[self.time]

    def start(self, us: int) -> int:
        """The start of the part that a moment lies in."""
        return us // self.length_us * self.length_us


@dataclass(frozen=True, slots=True)
class Part:
    """What is made anew in one go: deployments of one minute, hour, day or month, with the marks they had."""

    level: Level
    start_us: int
    marks: Marks


# Thirty days each, whatever people call a month: so that a report over a quarter reads a few rows of each deployment.
MONTH = Level("month_us", 30 * 86_400 * SECOND, tables.rollups_month, tables.dirty_months, 50)
DAY = Level("day_us", 86_400 * SECOND, tables.rollups_day, tables.dirty_days, 200, MONTH)
HOUR = Level("hour_us", 3600 * SECOND, tables.rollups_hour, tables.dirty_hours, 100, DAY)
MINUTE = Level("minute_us", 60 * SECOND, tables.rollups_minute, tables.dirty_minutes, 500, HOUR)


def due(conn: Connection, level: Level, now_us: int) -> list[Part]:
    """What is to be made anew, the oldest first, in parts of bounded size."""
    c = level.dirty.c
    at = c[level.time]
    starts: dict[int, list[tuple[str, int]]] = defaultdict(list)
    dirty = select(at, c.deployment, c.mark).where(c.due_us <= now_us).order_by(at, c.deployment)
    for start_us, deployment, mark in conn.execute(dirty):
        starts[start_us].append((deployment, mark))
    return [
        Part(level, start, dict(some)) for start, marks in starts.items() for some in batches(marks, level.together)
    ]


def oldest_dirty(conn: Connection, now_us: int) -> int | None:
    """The first minute whose roll-up lacks something that was acknowledged; None where all are up to date."""
    c = tables.dirty_minutes.c
    oldest: int | None = conn.scalar(select(func.min(c.minute_us)).where(c.due_us <= now_us))
    return oldest


def exchange(conn: Connection, part: Part, rows: Rows, *, now_us: int, later: Mapping[str, int] | None = None) -> None:
    """Replace the rows of each deployment whose mark is still there. `later`: deployment -> when to do it again."""
    level, mine = part.level, _unchanged(conn, part)
    rollups = level.rollups
    conn.execute(delete(rollups).where(level.at == part.start_us, rollups.c.deployment.in_(mine)))
    kept = [
        {level.time: part.start_us} | key._asdict() | measures._asdict()
        for key, measures in rows.items()
        if key.deployment in mine
    ]
    if kept:
        conn.execute(insert(rollups), kept)
    _settle(conn, part, mine, later or {})
    if level.above:
        _mark(conn, level.above, level.above.start(part.start_us), mine, now_us)


def batches(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """In parts of at most `size`."""
    return (values[at : at + size] for at in range(0, len(values), size))


def _unchanged(conn: Connection, part: Part) -> list[str]:
    c = part.level.dirty.c
    here = c[part.level.time] == part.start_us
    seen = select(c.deployment, c.mark).where(here, c.deployment.in_(part.marks))
    # Locked, where a database locks rows: a mark written from here on waits for us and stays. In order, since two that
    # lock the same rows in different orders wait for each other.
    found = conn.execute(seen.order_by(c.deployment).with_for_update())
    return [deployment for deployment, mark in found if mark == part.marks[deployment]]


def _settle(conn: Connection, part: Part, mine: list[str], later: Mapping[str, int]) -> None:
    dirty = part.level.dirty
    here = dirty.c[part.level.time] == part.start_us
    done = [deployment for deployment in mine if deployment not in later]
    conn.execute(delete(dirty).where(here, dirty.c.deployment.in_(done)))
    for deployment in sorted(set(mine) & later.keys()):
        again = update(dirty).where(here, dirty.c.deployment == deployment)
        conn.execute(again.values(mark=new_mark(), due_us=later[deployment]))


def _mark(conn: Connection, level: Level, start_us: int, deployments: Sequence[str], now_us: int) -> None:
    """These need merging, the first time some while from now; those that do already keep their time."""
    table, time = level.dirty.name, level.time
    due_us = max(start_us + level.length_us, now_us) + _SETTLES_US
    statement = text(
        f"INSERT INTO {table} ({time}, deployment, mark, due_us) VALUES (:start, :deployment, :mark, :due)"  # noqa: S608 - our own names
        f" ON CONFLICT ({time}, deployment) DO UPDATE SET mark = excluded.mark"
    )
    mark = new_mark()
    if rows := [{"start": start_us, "deployment": d, "mark": mark, "due": due_us} for d in deployments]:
        conn.execute(statement, rows)
