# SPDX-License-Identifier: Apache-2.0
"""What is past its time goes, piece by piece, and nothing goes before what is made of it is made."""

from __future__ import annotations

import pytest
from sqlalchemy import func, insert, select

from kvflags.errors import UsageError
from kvflags_collector.settings import Settings
from kvflags_collector.store import partitions, retention
from kvflags_collector.store.levels import DAY, HOUR, MINUTE
from kvflags_collector.store.outcome_tables import events, outcomes_hour
from kvflags_collector.store.retention import Maintainer, Retention, maintain
from kvflags_collector.store.spans import insert_resources
from kvflags_collector.store.telemetry_tables import resources, spans

DAY_US = 86_400 * 10**6


def _count(db, table) -> int:
    with db.read() as conn:
        return conn.scalar(select(func.count()).select_from(table))


def _all(db, now_us) -> None:
    for _ in range(100):
        if maintain(db, now_us):
            return
    raise AssertionError("it does not come to an end")


def _counts(db) -> list[int]:
    return [_count(db, table) for table in (spans, MINUTE.rollups, HOUR.rollups, DAY.rollups)]


@pytest.mark.parametrize(
    ("days", "left"),
    [(14, [5, 1, 1, 1]), (17, [0, 1, 1, 1]), (89, [0, 1, 1, 1]), (91, [0, 0, 1, 1]), (731, [0, 0, 0, 1])],
)
def test_each_level_has_its_time_and_days_stay(db, raw, days, left):
    raw.store(*(raw.span(number) for number in range(1, 6)))
    raw.settle()
    _all(db, raw.noon_us + days * DAY_US)
    assert _counts(db) == left


def test_what_is_not_rolled_up_stays_until_it_is(db, raw):
    raw.store(*(raw.span(number) for number in range(1, 6)))
    _all(db, raw.noon_us + 1000 * DAY_US)
    assert _counts(db) == [5, 0, 0, 0]
    raw.settle()
    _all(db, raw.noon_us + 1000 * DAY_US)
    assert _counts(db) == [0, 0, 0, 1]


def test_only_what_is_past_goes(db, raw):
    for day in range(6):
        raw.store(raw.span(day + 1, start_ns=raw.noon_ns + day * DAY_US * 1000))
    raw.settle()
    _all(db, raw.noon_us + 18 * DAY_US)
    with db.read() as conn:
        first = conn.scalar(select(func.min(spans.c.start_ns)))
    # PostgreSQL drops whole days, so that of the edge stays.
    assert (first - raw.noon_ns) // (DAY_US * 1000) == 3


def test_a_pass_removes_a_bounded_piece(db, raw, monkeypatch):
    monkeypatch.setattr(retention, "_ROWS", 10)
    with db.append() as conn:
        rows = [{"time_us": raw.noon_us + n, "fingerprint": b"%16d" % n, "name": "x"} for n in range(35)]
        conn.execute(insert(events), [row | {"attributes": {}, "received_us": raw.noon_us} for row in rows])
    left = []
    while not maintain(db, raw.noon_us + 100 * DAY_US):
        left.append(_count(db, events))
    assert left == [24, 13, 2]
    assert _count(db, events) == 0


def test_a_resource_goes_with_its_last_span(db, raw):
    old, new, again = (letter * 16 for letter in (b"o", b"n", b"a"))

    def came(day, *fingerprints):
        with db.append() as conn:
            insert_resources(conn, {(one, "{}") for one in fingerprints}, raw.noon_us + day * DAY_US)
        at = raw.noon_ns + day * DAY_US * 1000
        raw.store(*(raw.span(n, start_ns=at + n, resource=one) for n, one in enumerate(fingerprints, 1)))

    came(0, old, again)
    came(5, again)
    came(10, new)
    raw.settle()
    left = {}
    for day in (14, 18, 23, 40):
        _all(db, raw.noon_us + day * DAY_US)
        with db.read() as conn:
            left[day] = set(conn.scalars(select(resources.c.fingerprint)))
            assert set(conn.scalars(select(spans.c.resource))) <= left[day]
    assert left == {14: {old, new, again}, 18: {new, again}, 23: {new}, 40: set()}


def test_points_are_forgotten_when_nobody_can_send_them_again(db, raw):
    key = {"deployment": "c/ns/a", "generation": "r1", "epoch": 1, "engine_id": "e", "arm": "", "instrument": "i"}
    with db.append() as conn:
        hours = [raw.noon_us, raw.noon_us + 2 * DAY_US]
        conn.execute(insert(outcomes_hour), [{"hour_us": hour, "seen": b"12345678", **key} for hour in hours])
    _all(db, raw.noon_us + 9 * DAY_US)
    with db.read() as conn:
        assert conn.scalars(select(outcomes_hour.c.seen).order_by(outcomes_hour.c.hour_us)).all() == [None, b"12345678"]


def test_an_sqlite_file_shrinks(db, raw):
    if db.engine.dialect.name != "sqlite":
        pytest.skip("PostgreSQL drops a day's table and returns its space by that")
    raw.store(*(raw.span(number, attributes=f'{{"x":"{"x" * 4000}"}}') for number in range(1, 300)))
    raw.settle()
    _all(db, raw.noon_us + 20 * DAY_US)
    with db.read() as conn:
        assert conn.exec_driver_sql("PRAGMA freelist_count").scalar() == 0
        assert conn.exec_driver_sql("PRAGMA page_count").scalar() < 200


@pytest.mark.parametrize("given", [{"raw": 8}, {"minutes": 8}, {"hours": 89}])
def test_what_is_still_needed_cannot_be_given_up(given):
    with pytest.raises(UsageError, match=f"--keep-{next(iter(given))} takes"):
        Settings(retention=Retention(**given))


def test_on_postgresql_tomorrow_has_its_table_before_its_first_span(db, raw):
    maintain(db, raw.noon_us)
    today = raw.noon_us // DAY_US
    with db.read() as conn:
        assert partitions.days(conn) == ([today, today + 1] if conn.dialect.name == "postgresql" else [])


def test_the_maintainer_goes_on_while_much_is_to_go(db, raw, monkeypatch):
    monkeypatch.setattr(retention, "_ROWS", 10)
    with db.append() as conn:
        rows = [{"time_us": raw.noon_us + n, "fingerprint": b"%16d" % n, "name": "x"} for n in range(12)]
        conn.execute(insert(events), [row | {"attributes": {}, "received_us": raw.noon_us} for row in rows])
    maintainer = Maintainer(db, Retention(), clock=lambda: raw.noon_us + 100 * DAY_US)
    assert [maintainer.once(), maintainer.once()] == [0.1, 600.0]
    maintainer.close()
