# SPDX-License-Identifier: Apache-2.0
"""A past day's report: the same bytes whenever it is asked for, also when what it was made of is gone."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import delete
from stored_fleet import DAY_US, HOUR_US, Fleet

from kvflags.errors import NotFound, UsageError
from kvflags.telemetry.instruments import InstrumentName as Name
from kvflags_collector.feedback import given, report
from kvflags_collector.rollout import flags
from kvflags_collector.store import control_tables as tables
from kvflags_collector.store.outcome_tables import events, outcomes_hour
from kvflags_collector.store.rollup_tables import dirty_hours, presence, rollups_hour, rollups_minute
from kvflags_collector.store.telemetry_tables import spans

RAW = (spans, events, rollups_minute, rollups_hour, outcomes_hour, presence)


def _measured(scene):
    fleet = Fleet(scene)
    fleet.store({Name.TTFT: -0.3})
    fleet.judge_at(4.2)
    fleet.merge_days()
    return fleet


@pytest.fixture
def fleet(copied):
    """20 deployments, half of them treated and 30 % faster; a judged event each, and everything merged to days."""
    return copied(_measured)


def as_of(fleet, time_us):
    found = report.build(fleet.scene.db, fleet.scene.key, fleet.scene.now, as_of_us=time_us)
    return json.dumps(found)


def test_the_bytes_are_the_same_before_and_after_what_was_raw_is_gone(fleet):
    scene, past = fleet.scene, fleet.event_us + 10 * DAY_US
    scene.now = past + DAY_US
    before = as_of(fleet, past)
    found = json.loads(before)
    assert (found["verdict"]["state"], found["as_of"]) == ("ready", "2027-01-12T12:01:00.000000Z")
    assert found["generated_at"] == found["fresh_as_of"] == found["as_of"]
    assert found["evidence"]["transfers"] > 100_000
    assert found["coverage"] is None
    assert any("layouts" in what for what in found["unknown"])
    with scene.db.write() as conn:
        for table in RAW:
            conn.execute(delete(table))
        conn.execute(delete(dirty_hours))
    scene.now += 90 * DAY_US
    assert as_of(fleet, past) == before


def test_what_came_later_is_not_in_it(fleet):
    scene, past = fleet.scene, fleet.event_us + 10 * DAY_US
    scene.now = past + DAY_US
    before = as_of(fleet, past)
    with scene.db.write() as conn:
        said = {"sign": "negative", "tags": ["crash"], "comment": "late"}
        given.give(conn, scene.key, fleet.names[0], said, author="ann", now=scene.now)
        flags.set_target(conn, scene.key, flags.target(None, 12), author="ann", reason="more", now=scene.now)
    for name in fleet.names:
        scene.starts(name, "r3")
        scene.transfers(name, "r3", 5)
    with scene.db.write() as conn:
        alarm = {"kind": "mixed_generation", "flag": None, "deployment": fleet.names[0], "generation": "r2", "epoch": 1}
        times = {"first_us": scene.now, "last_us": scene.now, "ended_us": None}
        conn.execute(tables.alarms.insert().values(**alarm, **times, detail={}))
    scene.now += 5 * DAY_US
    fleet.judge_at(20)
    assert as_of(fleet, past) == before
    now = fleet.report()
    assert (now["flag"]["target"]["count"], now["feedback"]["negative"]) == (12, 1)


def test_before_an_event_was_frozen_there_was_none(fleet):
    fleet.scene.now = fleet.event_us + 20 * DAY_US
    early = json.loads(as_of(fleet, fleet.event_us + 4 * DAY_US))
    assert (early["outcomes"], early["verdict"]["state"]) == ([], "waiting")
    late = json.loads(as_of(fleet, fleet.event_us + 4 * DAY_US + 6 * HOUR_US))
    assert late["outcomes"], "frozen 4.2 days after"


def test_a_time_before_the_flag_or_still_to_come_is_refused(fleet):
    scene = fleet.scene
    with pytest.raises(NotFound, match="there was no flag"):
        as_of(fleet, 1)
    with pytest.raises(UsageError, match="still to come"):
        as_of(fleet, scene.now + 1)
