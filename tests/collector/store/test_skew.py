# SPDX-License-Identifier: Apache-2.0
"""Clocks of engines that are wrong: how it is measured, and that their transfers count when they really began."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvflags_collector.store import skew
from kvflags_collector.store.levels import HOUR, MINUTE
from kvflags_collector.store.rollups import roll
from kvflags_collector.store.spans import mark_minutes

SECOND = 10**6
AN_HOUR = 3600 * SECOND


def _note(raw, engine: str, skew_us: int, since_us: int) -> None:
    """As a heartbeat does."""
    with raw.db.write() as conn:
        minutes = skew.note(conn, engine, "c/ns/a", skew_us, since_us)
        mark_minutes(conn, [(minute, "c/ns/a") for minute in minutes], [])


def _minutes(raw) -> list[tuple[int, int]]:
    """(minutes since noon, transfers)."""
    return [((row["minute_us"] - raw.noon_us) // (60 * SECOND), row["transfers"]) for row in raw.rows()]


@given(
    st.integers(-AN_HOUR, AN_HOUR),
    st.lists(st.integers(0, 59 * SECOND), min_size=1, max_size=30),
)
def test_the_shortest_way_of_many_heartbeats_tells_the_skew(ahead, delays):
    found = None
    for beat, delay in enumerate(delays):
        sent = beat * 30 * SECOND
        found = skew.estimate(found, sent + ahead, sent + delay)
    drift = 3_000 * len(delays)
    assert -min(delays) - drift <= found - ahead <= 0


def test_a_clock_that_is_set_right_is_believed_at_once_in_both_directions():
    assert skew.estimate(AN_HOUR, 0, 0) == 0
    assert skew.estimate(0, AN_HOUR, 0) == AN_HOUR


@pytest.mark.parametrize("ahead", [AN_HOUR, -AN_HOUR, 90 * SECOND, -17 * AN_HOUR - 31 * SECOND])
def test_an_engine_with_a_wrong_clock_counts_in_the_right_minute(raw, ahead):
    _note(raw, "decode-0", ahead, raw.noon_us)
    dated = {"start_ns": raw.noon_ns + (ahead + 65 * SECOND) * 1000, "received_us": raw.noon_us + 66 * SECOND}
    right = {"start_ns": raw.noon_ns + 70 * SECOND * 1000, "engine_id": "decode-1"}
    raw.store(raw.span(1, **dated), raw.span(2, **right))
    roll(raw.db, raw.settled_us)
    assert _minutes(raw) == [(1, 1), (1, 1)]


@pytest.mark.parametrize("ahead", [-16, 1, 31, 59, -59, 60, 61, 3600])
def test_whatever_a_clock_is_off_by_each_transfer_counts_once(raw, ahead):
    _note(raw, "decode-0", ahead * SECOND, raw.noon_us)
    every_7_s = range(0, 240, 7)
    for number, at in enumerate(every_7_s):
        dated = raw.noon_ns + (at + ahead) * 10**9
        raw.store(raw.span(number, start_ns=dated, received_us=raw.noon_us + at * SECOND))
    roll(raw.db, raw.settled_us)
    assert _minutes(raw) == [(minute, sum(at // 60 == minute for at in every_7_s)) for minute in range(4)]


def test_of_two_heartbeats_in_one_microsecond_the_later_one_counts(raw):
    for ahead in (AN_HOUR, -AN_HOUR):
        _note(raw, "decode-0", ahead, raw.noon_us)
    with raw.db.read() as conn:
        assert [clock.skew_us for clock in skew.clocks(conn, ["c/ns/a"])] == [-AN_HOUR]


@pytest.mark.parametrize("year", [1, 1677, 2263, 9999])
def test_a_clock_of_another_age_holds_up_nobody_elses_transfers(raw, year):
    ahead = (year - 2026) * 366 * 86_400 * SECOND
    _note(raw, "decode-0", ahead, raw.noon_us)
    raw.store(raw.span(1), raw.span(2, engine_id="decode-1"))
    assert roll(raw.db, raw.settled_us)
    assert (0, 1) in _minutes(raw)


def test_the_ranks_of_a_transfer_with_a_wrong_clock_stay_together(raw):
    _note(raw, "decode-0", AN_HOUR, raw.noon_us)
    for rank, at in ((1, 61), (0, 59)):
        raw.store(raw.ranked(rank, at=(3600 + at) * 10**9, received_us=raw.noon_us + 62 * SECOND))
        roll(raw.db, raw.noon_us + 62 * SECOND)
    assert [(row["minute_us"], row["transfers"]) for row in raw.rows()] == [(raw.noon_us, 1)]
    assert raw.rows()[0]["duration_ns_sum"] == 2 * 10**9 + 1000


def test_a_clock_set_right_in_between_dates_only_what_came_before(raw):
    _note(raw, "decode-0", AN_HOUR, raw.noon_us)
    _note(raw, "decode-0", 0, raw.noon_us + 120 * SECOND)
    before = {"start_ns": raw.noon_ns + (3600 + 60) * 10**9, "received_us": raw.noon_us + 61 * SECOND}
    after = {"start_ns": raw.noon_ns + 180 * 10**9, "received_us": raw.noon_us + 181 * SECOND}
    raw.store(raw.span(1, **before), raw.span(2, **after))
    raw.settle()
    assert _minutes(raw) == [(1, 1), (3, 1)]
    assert [row["transfers"] for row in raw.rows(HOUR)] == [2]


def test_what_was_counted_just_before_the_collector_knew_is_moved(raw):
    raw.store(raw.span(1, start_ns=raw.noon_ns + AN_HOUR * 1000, received_us=raw.noon_us + SECOND))
    roll(raw.db, raw.noon_us + SECOND)
    assert _minutes(raw) == [(60, 1)]
    _note(raw, "decode-0", AN_HOUR, raw.noon_us + SECOND)
    roll(raw.db, raw.noon_us + SECOND)
    assert _minutes(raw) == [(0, 1)]


def test_below_a_second_nothing_is_corrected_and_nothing_written(raw):
    _note(raw, "decode-0", 900_000, raw.noon_us)
    _note(raw, "decode-0", -999_999, raw.noon_us)
    with raw.db.read() as conn:
        assert skew.clocks(conn, ["c/ns/a"]) == []


def test_a_retry_of_a_corrected_span_counts_once(raw):
    _note(raw, "decode-0", AN_HOUR, raw.noon_us)
    span = raw.span(1, start_ns=raw.noon_ns + AN_HOUR * 1000)
    raw.store(span)
    _note(raw, "decode-0", AN_HOUR + 5 * SECOND, raw.noon_us + SECOND)
    raw.store(span | {"received_us": raw.noon_us + 2 * SECOND})
    roll(raw.db, raw.noon_us + 2 * SECOND)
    assert _minutes(raw) == [(0, 1)]
    assert MINUTE.start(raw.noon_us) == raw.noon_us
