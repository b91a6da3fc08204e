# SPDX-License-Identifier: Apache-2.0
"""Who was alive when: one bit for each minute with a heartbeat, and no row for an hour in which nothing was heard."""

from kvflags_collector.store.presence import HOUR_US, Heard, heard, note

MINUTE = 60 * 10**6
NOON = 1_798_891_200 * 10**6


def _beat(db, at_us, *, new=False, engine="e", deployment="c/ns/a", generation="r1"):
    with db.write() as conn:
        note(conn, deployment, generation, engine, new=new, now_us=at_us)


def _heard(db, since=NOON, until=NOON + 24 * HOUR_US, deployments=("c/ns/a",)):
    with db.read() as conn:
        return heard(conn, deployments, since, until)


def test_heartbeats_of_a_minute_are_one_and_minutes_add_up(db):
    for at in (0, 30, 60, 60 * 59):
        _beat(db, NOON + at * 10**6, new=at == 0)
    assert _heard(db) == [Heard(NOON, "c/ns/a", "r1", "e", minutes=3, starts=1)]


def test_an_hour_without_a_heartbeat_is_missing(db):
    for hour in (0, 2):
        _beat(db, NOON + hour * HOUR_US)
    assert [(one.hour_us - NOON) // HOUR_US for one in _heard(db)] == [0, 2]


def test_a_full_hour_of_a_full_bitmap(db):
    for minute in range(60):
        _beat(db, NOON + minute * MINUTE)
    assert [one.minutes for one in _heard(db)] == [60]


def test_an_engine_that_starts_again_is_counted(db):
    for at in range(3):
        _beat(db, NOON + at * MINUTE, new=True)
    assert [one.starts for one in _heard(db)] == [3]


def test_engines_generations_and_deployments_are_kept_apart_and_hours_bounded(db):
    for given in ({}, {"engine": "f"}, {"generation": "r2"}, {"deployment": "c/ns/b"}):
        _beat(db, NOON, **given)
    _beat(db, NOON + HOUR_US)
    names = [(one.engine_id, one.generation) for one in _heard(db, until=NOON + HOUR_US)]
    assert names == [("e", "r1"), ("f", "r1"), ("e", "r2")]
    assert len(_heard(db, deployments=("c/ns/a", "c/ns/b"))) == 5
