# SPDX-License-Identifier: Apache-2.0
"""Roll-ups against raw spans: transfers from their ranks, in the right minute, the same bytes in whatever order."""

from __future__ import annotations

import time
from math import log
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from kvflags_collector.store import rollups
from kvflags_collector.store.database import Database
from kvflags_collector.store.histogram import Histogram
from kvflags_collector.store.rollups import CLOSES_AFTER_US, Roller, oldest_dirty, roll
from kvflags_collector.store.spans import insert_spans, mark_minutes
from kvflags_collector.store.telemetry_tables import dirty_minutes, rollups_minute, spans
from kvflags_collector.store.transfers import Rank, transfers

MINUTE = 60 * 10**9
NOON = 1_798_891_200 * 10**9
NOON_US = NOON // 1000
LATER_US = NOON_US + 2 * CLOSES_AFTER_US


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> Any:
    made = Database(f"sqlite:///{tmp_path_factory.mktemp('db')}/kvflags.db", upgrade=True)
    yield made
    made.close()


@pytest.fixture
def db(database: Database) -> Database:
    _clear(database)
    return database


def _clear(db: Database) -> None:
    with db.write() as conn:
        for table in (spans, dirty_minutes, rollups_minute):
            conn.execute(delete(table))


def _span(number: int, **given: Any) -> tuple[Any, ...]:
    values = {
        "start_ns": NOON + number,
        "trace_id": number.to_bytes(16, "big"),
        "span_id": number.to_bytes(8, "big"),
        "end_ns": NOON + number + 1_000_000,
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
        "received_us": NOON_US,
    } | given
    return tuple(values.get(column.name) for column in spans.columns)


def _store(db: Database, *rows: tuple[Any, ...]) -> None:
    """As the writer does: the spans and what they make dirty, in one transaction."""
    named = [dict(zip(spans.columns.keys(), row, strict=True)) for row in rows]
    minutes = {(row["start_ns"] // MINUTE * 60_000_000, row["deployment"]) for row in named}
    ranked = {row["trace_id"] for row in named if row["world_size"] > 1}
    with db.write() as conn:
        insert_spans(conn, list(rows))
        mark_minutes(conn, minutes, ranked)


def _rows(db: Database) -> list[dict[str, Any]]:
    with db.read() as conn:
        return [dict(row) for row in conn.execute(select(rollups_minute)).mappings()]


def test_a_minute_of_transfers(db):
    failed = {"status": 2, "error_type": "handshake_failed", "bytes": None, "descriptors": None, "post_ns": None}
    _store(db, _span(1), _span(2, end_ns=NOON + 2 + 3_000_000, descriptors=6), _span(3, **failed))
    _store(db, _span(4, name="GET /"))
    assert roll(db, NOON_US)
    key = {
        "minute_us": NOON_US,
        "deployment": "c/ns/a",
        "generation": "r1",
        "epoch": 1,
        "engine_id": "decode-0",
        "arm": "treatment",
        "direction": "pull",
        "backend": "FLASH_ATTN",
    }
    nothing = Histogram.of([]).to_bytes()
    assert _rows(db) == [
        key
        | {
            "size_class": "",
            "transfers": 1,
            "incomplete": 0,
            "failed": 1,
            "errors": {"handshake_failed": 1},
            "bytes": 0,
            "descriptors": 0,
            "blocks": 0,
            "duration_ns_sum": 0,
            "duration_log_sum": 0.0,
            "post_ns_sum": 0,
            "duration_ns_min": None,
            "duration_ns_max": None,
            "duration_hist": nothing,
            "post_hist": nothing,
        },
        key
        | {
            "size_class": "1Mi",
            "transfers": 2,
            "incomplete": 0,
            "failed": 0,
            "errors": {},
            "bytes": 131_074,
            "descriptors": 10,
            "blocks": 4,
            "duration_ns_sum": 4_000_000,
            "duration_log_sum": log(1_000_000) + log(3_000_000),
            "post_ns_sum": 20_000,
            "duration_ns_min": 1_000_000,
            "duration_ns_max": 3_000_000,
            "duration_hist": Histogram.of([1_000_000, 3_000_000]).to_bytes(),
            "post_hist": Histogram.of([10_000, 10_000]).to_bytes(),
        },
    ]
    with db.read() as conn:
        assert oldest_dirty(conn, LATER_US) is None


def _ranked(rank: int, at: int = 0, world_size: int = 2, **given: Any) -> tuple[Any, ...]:
    start = {"start_ns": NOON + at, "end_ns": NOON + at + 1000, "trace_id": b"t" * 16}
    return _span(rank + 1, rank=rank, world_size=world_size, **(start | given))


def test_the_ranks_of_a_transfer_are_one_and_it_waits_for_the_last(db):
    _store(db, _ranked(0))
    roll(db, NOON_US)
    assert _rows(db) == []
    _store(db, _ranked(1, at=500, post_ns=90_000))
    roll(db, NOON_US)
    [row] = _rows(db)
    assert (row["transfers"], row["incomplete"], row["bytes"], row["descriptors"]) == (1, 0, 2 * 65_537, 8)
    assert (row["duration_ns_sum"], row["post_ns_sum"]) == (1500, 90_000)


def test_a_transfer_whose_rank_never_comes_is_incomplete_after_ten_minutes(db):
    _store(db, _ranked(0, world_size=3), _ranked(1, world_size=3))
    roll(db, NOON_US)
    roll(db, NOON_US + CLOSES_AFTER_US - 1)
    assert _rows(db) == []
    roll(db, NOON_US + CLOSES_AFTER_US)
    [row] = _rows(db)
    assert (row["transfers"], row["incomplete"], row["failed"], row["bytes"]) == (1, 1, 0, 0)


def test_one_failed_rank_fails_the_transfer_at_once(db):
    _store(db, _ranked(1, status=2, error_type="transfer_failed"))
    roll(db, NOON_US)
    [row] = _rows(db)
    assert (row["transfers"], row["failed"], row["errors"]) == (1, 1, {"transfer_failed": 1})


def test_a_late_rank_changes_the_minute_of_the_earliest(db):
    _store(db, _ranked(0, at=MINUTE - 1))
    roll(db, NOON_US)
    _store(db, _ranked(1, at=MINUTE + 5))
    roll(db, NOON_US)
    assert [(row["minute_us"], row["transfers"]) for row in _rows(db)] == [(NOON_US, 1)]


def test_an_early_rank_that_comes_last_takes_the_transfer_into_its_minute(db):
    _store(db, _ranked(1, at=MINUTE + 5))
    roll(db, LATER_US)
    assert [(row["minute_us"], row["incomplete"]) for row in _rows(db)] == [(NOON_US + 60_000_000, 1)]
    _store(db, _ranked(0, at=MINUTE - 1))
    roll(db, LATER_US)
    assert [(row["minute_us"], row["incomplete"]) for row in _rows(db)] == [(NOON_US, 0)]


def test_absurd_sizes_do_not_keep_a_minute_from_being_rolled(db):
    most = (1 << 63) - 1
    _store(db, _span(1, bytes=most, end_ns=most), _span(2, bytes=most, end_ns=0))
    roll(db, NOON_US)
    [row] = _rows(db)
    assert (row["bytes"], row["size_class"], row["duration_ns_min"]) == (most, "more", 0)


def test_a_span_that_arrives_while_its_minute_is_rolled_is_not_lost(db, monkeypatch):
    real = rollups.ranks_of

    def read_then_receive(conn: Any, *args: Any) -> Any:
        found = real(conn, *args)
        monkeypatch.setattr(rollups, "ranks_of", real)
        _store(db, _span(2))
        return found

    _store(db, _span(1))
    monkeypatch.setattr(rollups, "ranks_of", read_then_receive)
    roll(db, NOON_US)
    assert _rows(db) == []
    roll(db, NOON_US)
    assert [row["transfers"] for row in _rows(db)] == [2]


def test_what_does_not_fit_into_the_time_stays_dirty(db):
    _store(db, _span(1))
    assert not roll(db, NOON_US, seconds=0)
    with db.read() as conn:
        assert oldest_dirty(conn, NOON_US) == NOON_US


def test_the_lookup_of_other_ranks_uses_its_index(db):
    query = "EXPLAIN QUERY PLAN SELECT 1 FROM spans WHERE trace_id IN (x'00', x'01') AND world_size > 1"
    with db.read() as conn:
        assert "USING INDEX ix_spans_ranks" in str(conn.exec_driver_sql(query).all())


def test_the_roller_rolls_by_itself(db):
    roller = Roller(db, clock=lambda: NOON_US, every_s=0.01)
    roller.start()
    _store(db, _span(1))
    deadline = time.monotonic() + 10
    while not _rows(db) and time.monotonic() < deadline:
        time.sleep(0.01)
    roller.close()
    assert [row["transfers"] for row in _rows(db)] == [1]


_RANKS = st.lists(
    st.builds(
        lambda trace, rank, at, end, failed, size: (trace, rank, at, end, failed, size),
        st.integers(0, 5),
        st.integers(0, 3),
        st.integers(0, 3 * MINUTE),
        st.integers(0, 10**9),
        st.booleans(),
        st.one_of(st.none(), st.integers(0, 1 << 26)),
    ),
    min_size=1,
    max_size=12,
)


def _drawn(number: int, drawn: tuple[Any, ...]) -> tuple[Any, ...]:
    trace, rank, at, end, failed, size = drawn
    status = {"status": 2, "error_type": "transfer_failed"} if failed else {}
    # Traces 0 and 1 have one rank, the others 2, so that whole, partial and doubled transfers all occur.
    place = {"start_ns": NOON + at, "end_ns": NOON + at + end, "trace_id": bytes([trace + 1]) * 16}
    return _span(number + 1, rank=rank, world_size=1 if trace < 2 else 2, bytes=size, **place, **status)


@given(_RANKS, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_arrival_and_rolling_gives_the_same_bytes(database: Database, drawn, random):
    rows = [_drawn(number, one) for number, one in enumerate(drawn)]
    _clear(database)
    _store(database, *rows)
    roll(database, LATER_US)
    expected = _rows(database)
    _clear(database)
    random.shuffle(rows)
    for row in rows:
        _store(database, row)
        if random.random() < 0.5:
            roll(database, random.choice([NOON_US, LATER_US]))
    for _ in range(2):
        roll(database, LATER_US)
    assert _rows(database) == expected
    every = [dict(zip(spans.columns.keys(), row, strict=True)) for row in rows]
    found = list(transfers(Rank(*(row[name] for name in Rank._fields)) for row in every))
    assert sum(row["transfers"] for row in expected) == len(found)
    measured = [transfer for transfer in found if transfer.complete and not transfer.error]
    assert sum(row["bytes"] for row in expected) == sum(transfer.bytes for transfer in measured)
