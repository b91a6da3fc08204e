# SPDX-License-Identifier: Apache-2.0
"""Writing spans in bulk: the statements that the writer runs inside its transaction, and nothing else.

They go round SQLAlchemy's parameter handling, as tuples to the driver's executemany: the same insert with dictionaries
through Core takes twice the CPU (37,800 against 67,300 rows a second on SQLite). All write in the order of their keys,
since on PostgreSQL collectors that write the same rows wait for each other, and in different orders for ever.
"""
# ruff: noqa: S608 - only names of our own tables and columns stand in these statements

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, literal_column, select

from kvflags_collector.store import bulk_postgresql, bulk_sqlite, locks
from kvflags_collector.store.bulk import Bulk
from kvflags_collector.store.rollup_tables import dirty_minutes
from kvflags_collector.store.skew import true_minutes
from kvflags_collector.store.telemetry_tables import resources, spans

__all__ = ["SEEN_TO_US", "insert_all", "insert_resources", "insert_spans", "mark_minutes", "new_mark"]


def _insert(table: Table, *names: str) -> str:
    return f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) ON CONFLICT"


_COLUMNS = tuple(column.name for column in spans.columns)
_RESOURCES = f"{_insert(resources, 'fingerprint', 'attributes', 'seen_us')} DO NOTHING"
_SEEN = "UPDATE resources SET seen_us = ? WHERE fingerprint = ? AND seen_us < ?"
# Written once a day and not with every request: a row that collectors update is a row that they wait for.
SEEN_TO_US = 86_400 * 10**6
# What is marked already gets the new mark, and is due at once.
_MARK = (
    f"{_insert(dirty_minutes, 'minute_us', 'deployment', 'mark', 'due_us')}"
    " (minute_us, deployment) DO UPDATE SET mark = excluded.mark, due_us = excluded.due_us"
)
# Values bound in one statement; SQLite takes 32,766.
_BATCH = 500
# Spelled out, not bound: only so does SQLite see that its index of spans with several ranks serves.
_SEVERAL = spans.c.world_size > literal_column("1")
_MINUTE: ColumnElement[int] = literal_column("start_ns / 60000000000 * 60000000")


def insert_spans(
    conn: Connection,
    rows: Sequence[tuple[Any, ...]],
    names: Sequence[str] = _COLUMNS,
    constants: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """What is told in one go, as `insert_all` does."""
    insert_all(conn, [Bulk(rows, names, constants)])


def insert_all(conn: Connection, bulks: Iterable[Bulk]) -> None:
    """All spans that a transaction stores. One that is there already is left as it is: a retry counts once."""
    if some := [bulk for bulk in bulks if bulk.rows]:
        kind = bulk_sqlite if conn.dialect.name == "sqlite" else bulk_postgresql
        kind.insert(conn, some)


def insert_resources(conn: Connection, documents: Iterable[tuple[bytes, str]], now_us: int) -> None:
    """(fingerprint, JSON) of each resource seen now; of those that are there already, note the day."""
    known = sorted(documents)
    # First, so that one that the maintainer takes away at this moment is put back below.
    _many(conn, _SEEN, [(now_us, fingerprint, now_us - SEEN_TO_US) for fingerprint, _ in known])
    _many(conn, _RESOURCES, [(*one, now_us) for one in known])


def mark_minutes(conn: Connection, minutes: Iterable[tuple[int, str]], ranked: Iterable[bytes]) -> None:
    """Note what must be rolled again, in the transaction that changes it, after the spans are in.

    minutes: (minute_us, deployment). ranked: trace ids of transfers made by several ranks, which may stand in several
    minutes: a late rank changes the minute in which the earliest counts, an early one takes the transfer away from it.
    """
    found = set(minutes)
    if traces := sorted(ranked):
        locks.for_ranks(conn, {deployment for _, deployment in found})
        found |= _minutes_of(conn, traces)
    mark = new_mark()
    _many(conn, _MARK, [(minute, deployment, mark, 0) for minute, deployment in sorted(true_minutes(conn, found))])


def _minutes_of(conn: Connection, traces: Sequence[bytes]) -> set[tuple[int, str]]:
    """The (minute_us, deployment) in which ranks of these transfers began, by their own dates."""
    ranks = select(_MINUTE, spans.c.deployment).where(_SEVERAL).distinct()
    some = (traces[at : at + _BATCH] for at in range(0, len(traces), _BATCH))
    return {(row[0], row[1]) for batch in some for row in conn.execute(ranks.where(spans.c.trace_id.in_(batch)))}


def _many(conn: Connection, statement: str, rows: list[tuple[Any, ...]]) -> None:
    if rows:
        conn.exec_driver_sql(_native(conn, statement), rows)


def _native(conn: Connection, statement: str) -> str:
    """With the driver's own sign for a parameter; there is no other question mark in them."""
    return statement if conn.dialect.name == "sqlite" else statement.replace("?", "%s")


def new_mark() -> int:
    """A number that no transaction used before: with a counter, a row removed and made anew would look unchanged."""
    return secrets.randbits(62)
