# SPDX-License-Identifier: Apache-2.0
"""Hours, days and months say what the raw spans say, whatever came when, twice, late, or while they were merged."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, select

from kvflags_collector.store import rollups
from kvflags_collector.store.current import rolled
from kvflags_collector.store.levels import DAY, HOUR, MINUTE, MONTH
from kvflags_collector.store.measures import NOTHING, Measures, merge
from kvflags_collector.store.rollups import roll
from kvflags_collector.store.tally import tally
from kvflags_collector.store.transfers import Key, transfers

SECOND_NS = 10**9
HOUR_NS = 3600 * SECOND_NS
INTEGERS = [name for name, value in NOTHING._asdict().items() if not isinstance(value, float)]
LEVELS = (MINUTE, HOUR, DAY)


def _exact(measures: Measures) -> list[object]:
    return [getattr(measures, name) for name in INTEGERS]


def _from_raw(raw, rows, level) -> dict[tuple[int, Key], list[object]]:
    """The roll-up of all spans at once, without minutes, hours, marks or a database."""
    starts: dict[int, list[Any]] = {}
    for transfer in transfers(raw.rank(row) for row in rows):
        starts.setdefault(level.start(transfer.start_ns // 1000), []).append(transfer)
    return {(start, key): _exact(one) for start, some in starts.items() for key, one in tally(some).items()}


def _as_rolled(raw, level) -> dict[tuple[int, Key], list[object]]:
    return {
        (row[level.time], Key(*(row[name] for name in Key._fields))): [row[name] for name in INTEGERS]
        for row in raw.rows(level)
    }


def _current(db) -> tuple[list[object], list[int]]:
    """What a report reads, all together, and how many rows of minutes, hours and days that took."""
    with db.read() as conn:
        found = list(rolled(conn))
        counts = [len(conn.execute(select(level.at)).all()) for level in LEVELS]
    return _exact(merge([row.measures for row in found])), [len(found), *counts]


_SPANS = st.lists(
    st.fixed_dictionaries(
        {
            "trace": st.integers(0, 5),
            "rank": st.integers(0, 2),
            "at": st.integers(0, 50 * HOUR_NS) | st.integers(0, 2 * 60 * SECOND_NS),
            "end": st.integers(0, 10**9),
            "failed": st.booleans(),
            "bytes": st.none() | st.integers(0, 1 << 26),
            "received": st.sampled_from([0, 0, 0, 60, 5 * 24 * 3600]),
            "trace_state": st.sampled_from([None, None, "ot=th:8", "ot=th:55555555555555"]),
            "deployment": st.sampled_from(["c/ns/a", "c/ns/b"]),
        }
    ),
    min_size=1,
    max_size=14,
)


def _drawn(raw, number: int, drawn: dict[str, Any]) -> dict[str, Any]:
    status = {"status": 2, "error_type": "transfer_failed"} if drawn["failed"] else {}
    start = raw.noon_ns + drawn["at"]
    state = drawn["trace_state"]
    return raw.span(
        number + 1,
        start_ns=start,
        end_ns=start + drawn["end"],
        trace_id=bytes([drawn["trace"] + 1]) * 16,
        rank=drawn["rank"],
        world_size=1 if drawn["trace"] < 3 else 2,
        bytes=drawn["bytes"],
        deployment=drawn["deployment"],
        epoch=0 if drawn["trace"] in (2, 5) else 1,
        received_us=start // 1000 + drawn["received"] * 10**6,
        attributes=None if state is None else f'{{"otel.trace_state":"{state}"}}',
        **status,
    )


@given(_SPANS, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_level_is_what_raw_says_after_any_order_batches_and_duplicates(db, raw, drawn, random):
    rows = [_drawn(raw, number, one) for number, one in enumerate(drawn)]
    states = {id(row): one["trace_state"] for row, one in zip(rows, drawn, strict=True)}
    raw.clear()
    sent = [*rows, *random.choices(rows, k=3)]
    random.shuffle(sent)
    while sent:
        batch = [sent.pop() for _ in range(min(len(sent), random.randint(1, 4)))]
        raw.store(*batch)
        if random.random() < 0.4:
            roll(db, raw.noon_us + random.randint(0, 60) * 3600 * 10**6)
    raw.settle()
    expected = [row | {"trace_state": states[id(row)]} for row in rows]
    for level in LEVELS:
        assert _as_rolled(raw, level) == _from_raw(raw, expected, level)
    found, counts = _current(db)
    assert found == _exact(merge(list(tally(transfers(raw.rank(row) for row in expected)).values())))
    assert counts[0] == counts[3]
    roll(db, raw.noon_us + 2 * MONTH.length_us)
    decided = {at: one for at, one in _from_raw(raw, expected, MONTH).items() if at[1].epoch}
    assert _as_rolled(raw, MONTH) == decided
    again, counts = _current(db)
    assert again == found
    assert counts[0] == len(decided) + sum(not row["epoch"] for row in raw.rows(DAY))


def test_a_month_is_merged_a_minute_after_its_end_and_again_when_one_of_its_days_changes(db, raw):
    # Noon is in the eighth day of its thirty.
    ends = MONTH.start(raw.noon_us) + MONTH.length_us
    raw.store(raw.span(1), raw.span(2, epoch=0), raw.span(3, start_ns=raw.noon_ns + 30 * HOUR_NS))
    raw.settle()
    roll(db, ends + 59 * 10**6)
    assert (raw.rows(MONTH), _current(db)[1][0]) == ([], 3)
    roll(db, ends + 60 * 10**6)
    assert [(row["month_us"], row["epoch"], row["transfers"]) for row in raw.rows(MONTH)] == [
        (MONTH.start(raw.noon_us), 1, 2)
    ]
    # The month, and the one that nobody decided.
    assert _current(db)[1][0] == 2
    raw.store(raw.span(4))
    roll(db, ends + 60 * 10**6)
    assert _current(db)[0][INTEGERS.index("transfers")] == 4
    for hours in (1, 2, 3):
        roll(db, ends + hours * 3600 * 10**6)
    assert [row["transfers"] for row in raw.rows(MONTH)] == [3]


def test_an_hour_and_a_day_are_merged_a_minute_after_their_end_and_readable_at_once(db, raw):
    # Noon to 13:00, and the day ends twelve hours later.
    hour_ends, day_ends = raw.noon_us + 3600 * 10**6, raw.noon_us + 12 * 3600 * 10**6
    raw.store(raw.span(1), raw.span(2, start_ns=raw.noon_ns + 120 * SECOND_NS))
    for now, rows in (
        (raw.noon_us, (2, 0, 0)),
        (hour_ends + 59 * 10**6, (2, 0, 0)),
        (hour_ends + 60 * 10**6, (2, 1, 0)),
        (day_ends + 59 * 10**6, (2, 1, 0)),
        (day_ends + 60 * 10**6, (2, 1, 1)),
    ):
        roll(db, now)
        assert tuple(len(raw.rows(level)) for level in LEVELS) == rows
        found, counts = _current(db)
        assert found[INTEGERS.index("transfers")] == 2
        # The minutes of the open hour, then the hour, then the day.
        assert counts[0] == (2 if rows[1] == 0 else 1)


def test_a_span_of_a_merged_day_changes_all_three(db, raw):
    raw.store(raw.span(1))
    raw.settle()
    raw.store(raw.span(2))
    roll(db, raw.settled_us)
    assert [[row["transfers"] for row in raw.rows(level)] for level in LEVELS] == [[2], [1], [1]]
    assert _current(db)[0][INTEGERS.index("transfers")] == 2
    raw.settle()
    assert [[row["transfers"] for row in raw.rows(level)] for level in LEVELS] == [[2], [2], [2]]


def test_what_comes_after_its_day_was_frozen_is_late_and_changes_nothing_else(db, raw):
    frozen_us = raw.noon_us // DAY.length_us * DAY.length_us + 2 * DAY.length_us
    raw.store(raw.span(1), raw.span(2, received_us=frozen_us - 1), raw.span(3, received_us=frozen_us))
    raw.settle()
    for level in LEVELS:
        assert [(row["seen"], row["transfers"], row["late"]) for row in raw.rows(level)] == [(2, 2, 1)]


def test_a_late_rank_does_not_complete_its_transfer(raw):
    raw.store(raw.ranked(0), raw.ranked(1, received_us=raw.settled_us))
    raw.settle()
    assert [(row["incomplete"], row["late"]) for row in raw.rows(DAY)] == [(1, 1)]


def test_a_minute_rolled_while_its_hour_is_merged_is_not_lost(db, raw, monkeypatch):
    real = rollups.merged

    def read_then_receive(conn, part):
        found = real(conn, part)
        monkeypatch.setattr(rollups, "merged", real)
        raw.store(raw.span(2))
        roll(db, raw.noon_us)
        return found

    raw.store(raw.span(1))
    monkeypatch.setattr(rollups, "merged", read_then_receive)
    roll(db, raw.settled_us)
    assert raw.rows(HOUR) == []
    raw.settle()
    roll(db, raw.settled_us + 3600 * 10**6)
    assert [row["transfers"] for row in raw.rows(HOUR)] == [2]


@pytest.mark.parametrize("statements", range(1, 8))
def test_a_roller_that_dies_between_two_statements_leaves_the_rest_to_the_next(db, raw, statements):
    raw.store(raw.span(1), raw.ranked(0), raw.ranked(1, at=70 * SECOND_NS))
    left = [statements]

    def dies(*_: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise _DiedError

    @contextmanager
    def write():
        with db.write() as conn:
            event.listen(conn, "before_cursor_execute", dies)
            yield conn

    for seconds in (0, 60, 120):
        with suppress(_DiedError):
            roll(db, raw.settled_us + seconds * 10**6, write=write)
    assert left[0] <= 0
    raw.settle()
    roll(db, raw.settled_us + 3600 * 10**6)
    for level in LEVELS:
        assert sum(row["transfers"] for row in raw.rows(level)) == 2
    with db.read() as conn:
        assert [conn.execute(select(level.dirty)).all() for level in LEVELS] == [[], [], []]


class _DiedError(Exception):
    """The process is gone."""
