# SPDX-License-Identifier: Apache-2.0
"""Requests that were stored lately, by their hash: a client that did not hear the answer sends the same bytes again.

Asked once a request, so that a retry costs a look-up and not the insertion of its spans. It may forget: a span's key
still tells the same span from another.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, delete, select

from kvflags_collector.store.telemetry_tables import ingest_batches

__all__ = ["REMEMBERED_US", "forget", "known", "remember"]

# An SDK gives up after 10 s, an agent's queue by default after 5 minutes. At 140 requests a second, the most that one
# process takes, an hour is 500,000 rows or 25 MB.
REMEMBERED_US = 3600 * 10**6


def known(conn: Connection, digests: Iterable[bytes]) -> set[bytes]:
    """Which of these requests are stored already."""
    column = ingest_batches.c.digest
    return set(conn.scalars(select(column).where(column.in_(list(digests)))))


def remember(conn: Connection, digests: Iterable[bytes], received_us: int) -> None:
    """In the transaction that stores the last of their spans."""
    rows = [(digest, received_us) for digest in sorted(digests)]
    if not rows:
        return
    sign = "?" if conn.dialect.name == "sqlite" else "%s"
    statement = f"INSERT INTO ingest_batches (digest, received_us) VALUES ({sign}, {sign}) ON CONFLICT DO NOTHING"  # noqa: S608 - a sign
    conn.exec_driver_sql(statement, rows)


def forget(conn: Connection, now_us: int) -> None:
    """Remove those that nobody sends again."""
    conn.execute(delete(ingest_batches).where(ingest_batches.c.received_us < now_us - REMEMBERED_US))
