# SPDX-License-Identifier: Apache-2.0
"""Two collectors on one database: whoever takes which span, rolls or reports, the numbers are those of one."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import delete, select

from kvflags.errors import Unavailable
from kvflags_collector.feedback import report
from kvflags_collector.store import rollup_tables
from kvflags_collector.store.database import Database
from kvflags_collector.store.levels import DAY, HOUR, MINUTE
from kvflags_collector.store.roles import Role, Superseded, take
from kvflags_collector.store.rollups import roll
from kvflags_collector.store.spans import insert_spans, mark_minutes
from kvflags_collector.store.telemetry_tables import spans

SECOND = 10**6
DEPLOYMENTS = ("c/ns/a", "c/ns/b")


@pytest.fixture
def other(scene) -> Iterator[Database]:
    """A second collector on the database of `scene`; an SQLite file lets no second process in, so there they share."""
    if scene.db.engine.dialect.name == "sqlite":
        yield scene.db
        return
    db = Database(scene.db.url)
    yield db
    db.close()


def _stream(start_us: int, number: int) -> list[dict[str, Any]]:
    """Single ranks, pairs of ranks in two minutes, failures, and samples, over three hours."""
    drawn = random.Random(11)
    rows = []
    for at in range(number):
        begin = start_us * 1000 + drawn.randrange(3 * 3600) * 10**9 + at
        ranks = 1 if at % 3 else 2
        common = {
            "trace_id": drawn.randbytes(16),
            "name": "kv.transfer",
            "kind": 3,
            "status": 2 if at % 11 == 0 else 0,
            "error_type": "transfer_failed" if at % 11 == 0 else None,
            "arm": "control",
            "deployment": DEPLOYMENTS[at % 2],
            "generation": "r1",
            "epoch": 1,
            "engine_id": f"e{at % 2}",
            "mode": "pull",
            "world_size": ranks,
            "bytes": drawn.randrange(1 << 25),
            "descriptors": 8,
            "blocks": 4,
            "post_ns": 1000 + at,
            "backend": "FLASH_ATTN",
            "resource": b"r",
            "attributes": '{"otel.trace_state":"ot=th:8"}' if at % 5 == 0 else None,
            "received_us": start_us,
        }
        for rank in range(ranks):
            start = begin + rank * 40 * 10**9
            place = {"rank": rank, "span_id": drawn.randbytes(8), "start_ns": start, "end_ns": start + 10**6}
            rows.append(common | place)
    return rows


def _store(db: Database, batch: list[dict[str, Any]]) -> None:
    """One request, as a collector's writer commits it."""
    minutes = {(row["start_ns"] // (60 * 10**9) * 60 * SECOND, row["deployment"]) for row in batch}
    ranked = {row["trace_id"] for row in batch if row["world_size"] > 1}
    with db.write() as conn:
        insert_spans(conn, [tuple(row.get(column.name) for column in spans.columns) for row in batch])
        mark_minutes(conn, minutes, ranked)


def _collect(db: Database, name: str, batches: list[list[dict[str, Any]]], now: int) -> None:
    """A collector with its share of the stream, rolling whenever the role is its."""
    for batch in batches:
        _store(db, batch)
        term = take(db, Role.ROLLER, name, lambda: now)
        if term:
            # The other may have taken over, or may hold the rows: then it is theirs to do.
            with suppress(Superseded, Unavailable):
                roll(db, now, write=term.write)


def _everything(db: Database) -> dict[str, list[dict[str, Any]]]:
    with db.read() as conn:
        return {
            level.rollups.name: [
                dict(row) for row in conn.execute(select(level.rollups).order_by(*level.rollups.primary_key)).mappings()
            ]
            for level in (MINUTE, HOUR, DAY)
        }


def _settled(db: Database, now: int) -> int:
    for _ in range(3):
        assert roll(db, now)
        now += 60 * SECOND
    return now


def test_a_stream_split_over_two_collectors_gives_every_roll_up_and_the_report_of_one(scene, other):
    for name in DEPLOYMENTS:
        scene.starts(name, "r1")
    rows = _stream(scene.now, 150)
    now = scene.now + 3 * 86_400 * SECOND
    _store(scene.db, rows)
    end = _settled(scene.db, now)
    alone, alone_report = _everything(scene.db), report.build(scene.db, scene.key, end)
    with scene.db.write() as conn:
        for table in (spans, *(getattr(rollup_tables, name) for name in rollup_tables.__all__)):
            conn.execute(delete(table))

    drawn = random.Random(5)
    drawn.shuffle(rows)
    # Some requests reach both: an agent that got no answer from one tried the other.
    batches = [rows[at : at + 10] for at in range(0, len(rows), 10)]
    shares = [batches[0::2] + batches[:3], batches[1::2] + batches[:3]]
    threads = [
        threading.Thread(target=_collect, args=(db, name, share, now))
        for db, name, share in zip((scene.db, other), ("one", "two"), shares, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end = _settled(other, now + 3600 * SECOND)
    assert _everything(other) == alone
    both = [report.build(db, scene.key, end) for db in (scene.db, other)]
    for found in both:
        assert {name: found[name] for name in ("arms", "deployments", "data_health")} == {
            name: alone_report[name] for name in ("arms", "deployments", "data_health")
        }
    assert alone_report["deployments"][0]["transfers"] > 0
