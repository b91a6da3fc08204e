# SPDX-License-Identifier: Apache-2.0
"""The days of `spans` on PostgreSQL: one partition each, so that retention drops a table (12 ms) and deletes no rows.

A day is counted from 1970 in UTC. Its partition is made before the first span of that day is stored: by the maintainer
ahead of time, or else by whoever stores it. Only days that ingest accepts are ever asked for, so an engine with a wrong
clock makes none. On SQLite every function here does nothing: `spans` is one table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, text

from kvflags_collector.store import locks

__all__ = ["DAY_NS", "days", "drop", "ensure"]

DAY_NS = 86_400 * 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PREFIX = "spans_"

_LISTED = text(
    "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
    " WHERE i.inhparent = to_regclass('spans') ORDER BY c.relname"
)
_MISSING = text("SELECT name FROM unnest(CAST(:names AS text[])) AS name WHERE to_regclass(name) IS NULL")


def days(conn: Connection) -> list[int]:
    """Those that have a partition, the oldest first."""
    if conn.dialect.name != "postgresql":
        return []
    return [_day(name) for name in conn.scalars(_LISTED)]


def ensure(conn: Connection, wanted: Iterable[int]) -> None:
    """Make the partitions of these days that are not there. Who reads or writes spans meanwhile is not held up.

    A table is made and then attached: creating it as a partition would lock out everybody on `spans`, and so wait for
    the longest export.
    """
    asked = set(wanted)
    if conn.dialect.name != "postgresql" or not _missing(conn, asked):
        return
    locks.once(conn, "partitions")
    for day in sorted(_missing(conn, asked)):
        name, begin = _name(day), day * DAY_NS
        conn.exec_driver_sql(f"CREATE TABLE {name} (LIKE spans INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")
        conn.exec_driver_sql(
            f"ALTER TABLE spans ATTACH PARTITION {name} FOR VALUES FROM ({begin}) TO ({begin + DAY_NS})"
        )


def drop(conn: Connection, day: int) -> None:
    """Take a day away. Needs everybody off `spans` for an instant: limit the wait with `locks.patiently`."""
    conn.exec_driver_sql(f"DROP TABLE {_name(day)}")


def _missing(conn: Connection, wanted: Collection[int]) -> set[int]:
    names = [_name(day) for day in wanted]
    return {_day(name) for name in conn.scalars(_MISSING, {"names": names})}


def _name(day: int) -> str:
    return f"{_PREFIX}{_EPOCH + timedelta(days=day):%Y%m%d}"


def _day(name: str) -> int:
    return (datetime.strptime(name, f"{_PREFIX}%Y%m%d").replace(tzinfo=UTC) - _EPOCH).days
