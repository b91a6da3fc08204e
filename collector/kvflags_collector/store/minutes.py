# SPDX-License-Identifier: Apache-2.0
"""A dirty minute's way through the database: what is due, the spans it is made of, and the exchange of its rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, delete, func, insert, literal_column, select, update

from kvflags.telemetry.attributes import SPAN_NAME
from kvflags_collector.store.spans import new_mark
from kvflags_collector.store.telemetry_tables import dirty_minutes, rollups_minute, spans
from kvflags_collector.store.transfers import Rank

__all__ = ["MINUTE_NS", "Marks", "due", "exchange", "oldest_dirty", "ranks_of"]

MINUTE_NS = 60 * 10**9
# Values bound in one statement; SQLite takes 32,766.
_BATCH = 500
_RANK = [spans.c[name] for name in Rank._fields]

# {deployment: the mark of its dirty minute}
Marks = Mapping[str, int]
T = TypeVar("T")


def due(conn: Connection, now_us: int) -> list[tuple[int, Marks]]:
    """What is to be rolled, the oldest minute (in microseconds) first, with at most 500 deployments in each part."""
    c = dirty_minutes.c
    query = select(c.minute_us, c.deployment, c.mark).where(c.due_us <= now_us).order_by(c.minute_us, c.deployment)
    minutes: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for minute_us, deployment, mark in conn.execute(query):
        minutes[minute_us].append((deployment, mark))
    return [(minute_us, dict(part)) for minute_us, marks in minutes.items() for part in _batches(marks)]


def oldest_dirty(conn: Connection, now_us: int) -> int | None:
    """The first minute whose roll-up lacks something that was acknowledged; None where all are up to date."""
    c = dirty_minutes.c
    oldest: int | None = conn.scalar(select(func.min(c.minute_us)).where(c.due_us <= now_us))
    return oldest


def ranks_of(conn: Connection, minute_us: int, deployments: Sequence[str]) -> list[Rank]:
    """The transfer spans of a minute, with the ranks of their transfers that stand in other minutes."""
    here = spans.c.start_ns.between(minute_us * 1000, minute_us * 1000 + MINUTE_NS - 1)
    wanted = (spans.c.name == SPAN_NAME, spans.c.deployment.in_(deployments))
    ranks = [Rank(*row) for row in conn.execute(select(*_RANK).where(here, *wanted))]
    for traces in _batches(sorted({rank.trace_id for rank in ranks if (rank.world_size or 1) > 1})):
        # Spelled out, not bound: only so does SQLite see that its index of spans with several ranks serves.
        several = spans.c.world_size > literal_column("1")
        elsewhere = select(*_RANK).where(spans.c.trace_id.in_(traces), several, ~here, *wanted)
        ranks += [Rank(*row) for row in conn.execute(elsewhere)]
    return ranks


def exchange(
    conn: Connection, minute_us: int, marks: Marks, rows: Sequence[Mapping[str, Any]], later: Mapping[str, int]
) -> None:
    """Replace the rows of each deployment whose mark is still there. `later`: deployment -> when to roll it again."""
    c, r = dirty_minutes.c, rollups_minute.c
    found = conn.execute(select(c.deployment, c.mark).where(c.minute_us == minute_us, c.deployment.in_(marks)))
    mine = {deployment for deployment, mark in found if mark == marks[deployment]}
    conn.execute(delete(rollups_minute).where(r.minute_us == minute_us, r.deployment.in_(mine)))
    if kept := [row for row in rows if row["deployment"] in mine]:
        conn.execute(insert(rollups_minute), kept)
    done = [deployment for deployment in mine if deployment not in later]
    conn.execute(delete(dirty_minutes).where(c.minute_us == minute_us, c.deployment.in_(done)))
    for deployment in mine & later.keys():
        again = update(dirty_minutes).where(c.minute_us == minute_us, c.deployment == deployment)
        conn.execute(again.values(mark=new_mark(), due_us=later[deployment]))


def _batches(values: Sequence[T]) -> Iterator[Sequence[T]]:
    return (values[at : at + _BATCH] for at in range(0, len(values), _BATCH))
