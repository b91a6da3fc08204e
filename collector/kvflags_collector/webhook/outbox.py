# SPDX-License-Identifier: Apache-2.0
"""The outbox: what is still to be delivered, and what came of each try. The caller owns the transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, func, select, update

from kvflags_collector.store.webhook_tables import webhook_events as events
from kvflags_collector.times import SECOND
from kvflags_collector.webhook.news import News

__all__ = ["ATTEMPTS", "Due", "Standing", "begun", "delivered", "due", "failed", "put", "standing"]

# Seconds after the n-th failure: 1, 2, 4 and so on to an hour. 18 tries are seven hours, a night's outage.
ATTEMPTS = 18
_LONGEST_S = 3600
# Marks when telling began; it is no event, and is never due.
_BEGUN = "begun"


@dataclass(frozen=True, slots=True)
class Due:
    """`body`: the very bytes, the same at each try."""

    id: str
    body: bytes
    attempts: int


class Standing(NamedTuple):
    """How many events were delivered, are still to be, or were given up; why the newest that was tried failed."""

    delivered: int
    waiting: int
    given_up: int
    error: str | None


def begun(conn: Connection) -> int | None:
    """Since when things are told, in microseconds; None before `put` was first called."""
    since: int | None = conn.scalar(select(events.c.recorded_us).where(events.c.id == _BEGUN))
    return since


def put(conn: Connection, found: Iterable[News], now: int, *, first: bool = False) -> None:
    """Keep what is to be delivered. Writes."""
    rows = [{"id": one.id, "body": one.body, "recorded_us": now, "attempts": 0, "due_us": now} for one in found]
    if first:
        rows.append({"id": _BEGUN, "body": {}, "recorded_us": now, "attempts": 0, "due_us": None})
    if rows:
        conn.execute(events.insert(), rows)


def due(conn: Connection, now: int, limit: int = 20) -> list[Due]:
    """Those to be tried now, the longest due first."""
    query = select(events).where(events.c.due_us <= now).order_by(events.c.due_us, events.c.id).limit(limit)
    return [
        Due(row["id"], json.dumps(row["body"], sort_keys=True).encode(), row["attempts"])
        for row in conn.execute(query).mappings()
    ]


def delivered(conn: Connection, one: Due, now: int) -> None:
    """Writes."""
    values = {"attempts": one.attempts + 1, "due_us": None, "delivered_us": now, "error": None}
    conn.execute(update(events).where(events.c.id == one.id).values(**values))


def failed(conn: Connection, one: Due, error: str, now: int) -> bool:
    """Put the next try off; whether there is one. Writes."""
    tries = one.attempts + 1
    again = tries < ATTEMPTS
    wait_s = min(2 ** (tries - 1), _LONGEST_S)
    values = {"attempts": tries, "due_us": now + wait_s * SECOND if again else None, "error": error[:500]}
    conn.execute(update(events).where(events.c.id == one.id).values(**values))
    return again


def standing(conn: Connection) -> Standing | None:
    """None where no webhook was ever set."""
    if begun(conn) is None:
        return None
    c = events.c
    counts = select(func.count(c.delivered_us), func.count(c.due_us), func.count()).where(c.id != _BEGUN)
    tried = select(c.error).where(c.attempts > 0).order_by(c.recorded_us.desc(), c.id.desc()).limit(1)
    done, waiting, total = conn.execute(counts).one()
    return Standing(done, waiting, total - done - waiting, conn.scalar(tried))
