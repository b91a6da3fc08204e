# SPDX-License-Identifier: Apache-2.0
"""Raw spans, stored as the writer stores them, and the roll-ups made of them."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection, delete, select

from kvflags_collector.store import rollup_tables
from kvflags_collector.store.database import Database
from kvflags_collector.store.levels import MINUTE, Level
from kvflags_collector.store.rollups import roll
from kvflags_collector.store.spans import insert_spans, mark_minutes
from kvflags_collector.store.telemetry_tables import spans
from kvflags_collector.store.transfers import Rank

NOON_US = 1_798_891_200 * 10**6
_MADE_OF_SPANS = [getattr(rollup_tables, name) for name in rollup_tables.__all__]


class Raw:
    """Spans of one database, begun around `noon_us`. Long past `settled_us` everything is closed, due and merged."""

    noon_us, noon_ns = NOON_US, NOON_US * 1000
    settled_us = NOON_US + 10 * 86_400 * 10**6

    def __init__(self, db: Database) -> None:
        self.db = db

    def span(self, number: int, **given: Any) -> dict[str, Any]:
        """A good transfer of one rank, begun `number` ns past noon; `given` are columns."""
        start = given.get("start_ns", self.noon_ns + number)
        values = dict.fromkeys(spans.columns.keys()) | {
            "start_ns": start,
            "trace_id": number.to_bytes(16, "big"),
            "span_id": number.to_bytes(8, "big"),
            "end_ns": start + 1_000_000,
            "name": "kv.transfer",
            "kind": 3,
            "status": 0,
            "arm": "treatment",
            "deployment": "c/ns/a",
            "generation": "r1",
            "epoch": 1,
            "engine_id": "decode-0",
            "mode": "pull",
            "rank": 0,
            "world_size": 1,
            "bytes": 65_537,
            "descriptors": 4,
            "blocks": 2,
            "post_ns": 10_000,
            "backend": "FLASH_ATTN",
            "resource": b"r",
            "received_us": self.noon_us,
        }
        return values | given

    def ranked(self, rank: int, at: int = 0, world_size: int = 2, **given: Any) -> dict[str, Any]:
        """A rank of the one transfer of several, `at` ns past noon, 1 µs long."""
        start = {"start_ns": self.noon_ns + at, "end_ns": self.noon_ns + at + 1000, "trace_id": b"t" * 16}
        return self.span(rank + 1, rank=rank, world_size=world_size, **(start | given))

    def store(self, *rows: dict[str, Any]) -> None:
        """As the writer does: the spans and what they make dirty, in one transaction."""
        with self.db.append() as conn:
            self.write(conn, *rows)

    def write(self, conn: Connection, *rows: dict[str, Any]) -> None:
        """The same, in a transaction of the caller's."""
        minutes = {(row["start_ns"] // (60 * 10**9) * 60_000_000, row["deployment"]) for row in rows}
        ranked = {row["trace_id"] for row in rows if row["world_size"] > 1}
        insert_spans(conn, [tuple(row.values()) for row in rows])
        mark_minutes(conn, minutes, ranked)

    def rank(self, row: dict[str, Any]) -> Rank:
        """What the roll-ups look at of a span without attributes."""
        return Rank(*(row.get(name) for name in Rank._fields))

    def settle(self) -> None:
        """Roll minutes, a minute later their hours, and another minute later their days."""
        for seconds in (0, 60, 120):
            assert roll(self.db, self.settled_us + seconds * 10**6)

    def rows(self, level: Level = MINUTE) -> list[dict[str, Any]]:
        with self.db.read() as conn:
            rows = conn.execute(select(level.rollups).order_by(*level.rollups.primary_key)).mappings()
            return [dict(row) for row in rows]

    def clear(self) -> None:
        with self.db.write() as conn:
            for table in (spans, *_MADE_OF_SPANS):
                conn.execute(delete(table))


@pytest.fixture
def raw(db: Database) -> Raw:
    return Raw(db)


@pytest.fixture(scope="session")
def raw_on() -> type[Raw]:
    """raw_on(db): for tests that have several collectors."""
    return Raw
