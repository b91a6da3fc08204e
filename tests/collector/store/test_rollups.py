# SPDX-License-Identifier: Apache-2.0
"""Roll-ups against raw spans: transfers from their ranks, in the right minute, the same bytes in whatever order."""

from __future__ import annotations

import time
from math import log
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvflags_collector.store import rollups
from kvflags_collector.store.histogram import Histogram
from kvflags_collector.store.rollups import CLOSES_AFTER_US, Roller, oldest_dirty, roll
from kvflags_collector.store.transfers import transfers

MINUTE = 60 * 10**9
NOON = 1_798_891_200 * 10**9
NOON_US = NOON // 1000
LATER_US = NOON_US + 2 * CLOSES_AFTER_US


def test_a_minute_of_transfers(db, raw):
    failed = {"status": 2, "error_type": "handshake_failed", "bytes": None, "descriptors": None, "post_ns": None}
    raw.store(raw.span(1), raw.span(2, end_ns=NOON + 2 + 3_000_000, descriptors=6), raw.span(3, **failed))
    raw.store(raw.span(4, name="GET /"))
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
    assert raw.rows() == [
        key
        | {
            "size_class": "",
            "seen": 1,
            "transfers": 1,
            "incomplete": 0,
            "failed": 1,
            "late": 0,
            "errors": {"handshake_failed": 1},
            "bytes": 0,
            "descriptors": 0,
            "blocks": 0,
            "duration_ns_sum": 0,
            "duration_sq_sum": 0.0,
            "duration_log_sum": 0.0,
            "duration_log_sq_sum": 0.0,
            "post_ns_sum": 0,
            "duration_ns_min": None,
            "duration_ns_max": None,
            "duration_hist": nothing,
            "post_hist": nothing,
        },
        key
        | {
            "size_class": "1Mi",
            "seen": 2,
            "transfers": 2,
            "incomplete": 0,
            "failed": 0,
            "late": 0,
            "errors": {},
            "bytes": 131_074,
            "descriptors": 10,
            "blocks": 4,
            "duration_ns_sum": 4_000_000,
            "duration_sq_sum": 1e12 + 9e12,
            "duration_log_sum": log(1_000_000) + log(3_000_000),
            "duration_log_sq_sum": log(1_000_000) ** 2 + log(3_000_000) ** 2,
            "post_ns_sum": 20_000,
            "duration_ns_min": 1_000_000,
            "duration_ns_max": 3_000_000,
            "duration_hist": Histogram.of([1_000_000, 3_000_000]).to_bytes(),
            "post_hist": Histogram.of([10_000, 10_000]).to_bytes(),
        },
    ]
    with db.read() as conn:
        assert oldest_dirty(conn, LATER_US) is None


def test_the_ranks_of_a_transfer_are_one_and_it_waits_for_the_last(db, raw):
    raw.store(raw.ranked(0))
    roll(db, NOON_US)
    assert raw.rows() == []
    raw.store(raw.ranked(1, at=500, post_ns=90_000))
    roll(db, NOON_US)
    [row] = raw.rows()
    assert (row["transfers"], row["incomplete"], row["bytes"], row["descriptors"]) == (1, 0, 2 * 65_537, 8)
    assert (row["duration_ns_sum"], row["post_ns_sum"]) == (1500, 90_000)


def test_a_transfer_whose_rank_never_comes_is_incomplete_after_ten_minutes(db, raw):
    raw.store(raw.ranked(0, world_size=3), raw.ranked(1, world_size=3))
    roll(db, NOON_US)
    roll(db, NOON_US + CLOSES_AFTER_US - 1)
    assert raw.rows() == []
    roll(db, NOON_US + CLOSES_AFTER_US)
    [row] = raw.rows()
    assert (row["transfers"], row["incomplete"], row["failed"], row["bytes"]) == (1, 1, 0, 0)


def test_one_failed_rank_fails_the_transfer_at_once(db, raw):
    raw.store(raw.ranked(1, status=2, error_type="transfer_failed"))
    roll(db, NOON_US)
    [row] = raw.rows()
    assert (row["transfers"], row["failed"], row["errors"]) == (1, 1, {"transfer_failed": 1})


def test_a_late_rank_changes_the_minute_of_the_earliest(db, raw):
    raw.store(raw.ranked(0, at=MINUTE - 1))
    roll(db, NOON_US)
    raw.store(raw.ranked(1, at=MINUTE + 5))
    roll(db, NOON_US)
    assert [(row["minute_us"], row["transfers"]) for row in raw.rows()] == [(NOON_US, 1)]


def test_an_early_rank_that_comes_last_takes_the_transfer_into_its_minute(db, raw):
    raw.store(raw.ranked(1, at=MINUTE + 5))
    roll(db, LATER_US)
    assert [(row["minute_us"], row["incomplete"]) for row in raw.rows()] == [(NOON_US + 60_000_000, 1)]
    raw.store(raw.ranked(0, at=MINUTE - 1))
    roll(db, LATER_US)
    assert [(row["minute_us"], row["incomplete"]) for row in raw.rows()] == [(NOON_US, 0)]


def test_absurd_sizes_do_not_keep_a_minute_from_being_rolled(db, raw):
    most = (1 << 63) - 1
    raw.store(raw.span(1, bytes=most, end_ns=most), raw.span(2, bytes=most, end_ns=0))
    roll(db, NOON_US)
    [row] = raw.rows()
    assert (row["bytes"], row["size_class"], row["duration_ns_min"]) == (most, "more", 0)


def test_a_span_that_arrives_while_its_minute_is_rolled_is_not_lost(db, raw, monkeypatch):
    real = rollups.ranks_of

    def read_then_receive(conn, *args):
        found = real(conn, *args)
        monkeypatch.setattr(rollups, "ranks_of", real)
        raw.store(raw.span(2))
        return found

    raw.store(raw.span(1))
    monkeypatch.setattr(rollups, "ranks_of", read_then_receive)
    roll(db, NOON_US)
    assert raw.rows() == []
    roll(db, NOON_US)
    assert [row["transfers"] for row in raw.rows()] == [2]


def test_what_does_not_fit_into_the_time_stays_dirty(db, raw):
    raw.store(raw.span(1))
    assert not roll(db, NOON_US, seconds=0)
    with db.read() as conn:
        assert oldest_dirty(conn, NOON_US) == NOON_US


def test_the_lookup_of_other_ranks_uses_its_index(db, raw):
    raw.store(raw.ranked(0))
    explain, blob, index = {
        "sqlite": ("EXPLAIN QUERY PLAN", "x'00'", "USING INDEX ix_spans_ranks"),
        "postgresql": ("EXPLAIN", "'\\x00'", "spans_20270102_trace_id_idx"),
    }[db.engine.dialect.name]
    query = f"{explain} SELECT 1 FROM spans WHERE trace_id IN ({blob}, {blob}) AND world_size > 1"
    with db.read() as conn:
        if db.engine.dialect.name == "postgresql":
            # Which has one row, and would rather read that.
            conn.exec_driver_sql("SET LOCAL enable_seqscan = off")
        assert index in str(conn.exec_driver_sql(query).all())


def test_the_roller_rolls_by_itself(db, raw):
    roller = Roller(db, clock=lambda: NOON_US, every_s=0.01)
    roller.start()
    raw.store(raw.span(1))
    deadline = time.monotonic() + 10
    while not raw.rows() and time.monotonic() < deadline:
        time.sleep(0.01)
    roller.close()
    assert [row["transfers"] for row in raw.rows()] == [1]


_RANKS = st.lists(
    st.tuples(
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


def _drawn(raw, number: int, drawn: tuple[Any, ...]) -> dict[str, Any]:
    trace, rank, at, end, failed, size = drawn
    status = {"status": 2, "error_type": "transfer_failed"} if failed else {}
    # Traces 0 and 1 have one rank, the others 2, so that whole, partial and doubled transfers all occur.
    place = {"start_ns": NOON + at, "end_ns": NOON + at + end, "trace_id": bytes([trace + 1]) * 16}
    return raw.span(number + 1, rank=rank, world_size=1 if trace < 2 else 2, bytes=size, **place, **status)


@given(_RANKS, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_arrival_and_rolling_gives_the_same_bytes(db, raw, drawn, random):
    rows = [_drawn(raw, number, one) for number, one in enumerate(drawn)]
    raw.clear()
    raw.store(*rows)
    roll(db, LATER_US)
    expected = raw.rows()
    raw.clear()
    random.shuffle(rows)
    for row in rows:
        raw.store(row)
        if random.random() < 0.5:
            roll(db, random.choice([NOON_US, LATER_US]))
    for _ in range(2):
        roll(db, LATER_US)
    assert raw.rows() == expected
    found = list(transfers(raw.rank(row) for row in rows))
    assert sum(row["transfers"] for row in expected) == len(found)
    measured = [transfer for transfer in found if transfer.complete and not transfer.error]
    assert sum(row["bytes"] for row in expected) == sum(transfer.bytes for transfer in measured)
