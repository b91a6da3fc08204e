# SPDX-License-Identifier: Apache-2.0
"""Events as stored, and the questions that reports ask of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, Table, select
from sqlalchemy.dialects import postgresql, sqlite

from kvflags.telemetry.attributes import Name
from kvflags.telemetry.events import EventName
from kvflags_collector.store.outcome_tables import events

__all__ = ["dropped", "expired", "insert_events", "ranks_effective"]

# Values bound in one statement; SQLite takes 32,766.
_BATCH = 500
_INSERT: dict[str, Callable[[Table], Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def insert_events(conn: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Rows of the table. One that is there already is left: a record sent again counts once. Writes."""
    if rows:
        conn.execute(_INSERT[conn.dialect.name](events).on_conflict_do_nothing(), list(rows))


def ranks_effective(conn: Connection, engines: Collection[str]) -> dict[str, bool | None]:
    """By engine: whether every rank registered whole rows, as ranks other than 0 told; None while some have not."""
    told: dict[str, dict[int, bool]] = defaultdict(dict)
    sizes: dict[str, int] = {}
    for row in _rows(conn, EventName.FACT, engines):
        attributes = row["attributes"]
        if isinstance(effective := attributes.get(Name.EFFECTIVE), bool):
            told[row["engine_id"]][row["rank"]] = effective
            sizes[row["engine_id"]] = _whole(attributes.get(Name.WORLD_SIZE))
    return {engine: _every(ranks, sizes[engine]) for engine, ranks in told.items()}


def dropped(conn: Connection, engines: Collection[str]) -> Counter[str]:
    """By engine: spans that ranks other than 0 could not send. Rank 0's are in the heartbeats."""
    return _counted(conn, EventName.DROPS, Name.DROPPED_SPANS, engines, from_rank=1)


def expired(conn: Connection, engines: Collection[str]) -> Counter[str]:
    """By engine: requests whose KV blocks prefill gave up before anybody fetched them."""
    return _counted(conn, EventName.EXPIRED, Name.EXPIRED, engines, from_rank=0)


def _every(ranks: dict[int, bool], world_size: int) -> bool | None:
    if not all(ranks.values()):
        return False
    # Rank 0 has registered what its peers have: they take the layout from the same decision.
    return True if ranks.keys() >= set(range(1, world_size)) else None


def _counted(conn: Connection, name: str, attribute: str, engines: Collection[str], *, from_rank: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in _rows(conn, name, engines):
        if row["rank"] >= from_rank:
            counts[row["engine_id"]] += _whole(row["attributes"].get(attribute))
    return counts


def _rows(conn: Connection, name: str, engines: Collection[str]) -> Iterator[RowMapping]:
    """The oldest first, so that the last word of a rank is the one that stays."""
    known = sorted(engines)
    for at in range(0, len(known), _BATCH):
        mine = events.c.engine_id.in_(known[at : at + _BATCH])
        query = select(events).where(events.c.name == name, mine).order_by(events.c.time_us)
        yield from conn.execute(query).mappings()


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
