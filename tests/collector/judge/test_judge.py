# SPDX-License-Identifier: Apache-2.0
"""From stored hours to a verdict: events are frozen once, in whatever order their data came, and decide the report."""

from __future__ import annotations

import numpy as np
import pytest
from sqlalchemy import delete, update
from stored_fleet import DAY_US, Fleet

from kvflags.telemetry.instruments import InstrumentName as Name
from kvflags_collector.judge.moments import moments
from kvflags_collector.store.frozen_tables import frozen_events
from kvflags_collector.store.outcome_tables import outcomes_day, outcomes_hour
from kvflags_collector.store.outcomes import Point, merge


def test_an_event_is_a_replacement_after_the_step_in_either_arm(scene):
    fleet = Fleet(scene, 4)
    scene.passes(3600)
    scene.starts(fleet.names[0], "r3")
    with scene.db.read() as conn:
        found = moments(conn, scene.key)
    assert [(one.deployment, one.generation, one.previous) for one in found] == [
        (name, "r2", "r1") for name in fleet.names
    ]
    assert len({one.cohort for one in found}) == 1
    assert sum(one.treated for one in found) == 2


def test_what_has_matured_is_frozen_once_and_late_data_changes_nothing(scene):
    fleet = Fleet(scene, 4)
    fleet.store()
    assert (fleet.judge_at(3.9), fleet.judge_at(4.2), fleet.judge_at(4.3)) == (0, 4, 0)
    before = fleet.frozen()
    assert [row["left_out"] for row in before] == [None] * 4
    with scene.db.write() as conn:
        conn.execute(update(outcomes_hour).values(sum_micro=1))
    assert fleet.judge_at(5) == 0
    assert fleet.frozen() == before


def test_a_better_fleet_becomes_ready(fleet):
    fleet.store({Name.TTFT: -0.3})
    fleet.judge_at(4.2)
    early = fleet.report()
    assert (early["verdict"]["state"], early["verdict"]["reason"]) == ("waiting", "too_short")
    fleet.scene.now = fleet.event_us + 10 * DAY_US
    found = fleet.report()
    assert (found["verdict"]["state"], found["verdict"]["scope"]) == (
        "ready",
        ["FLASH_ATTN, gqa, vLLM 0.32, 4 heads, block 16"],
    )
    [ttft] = [one for one in found["outcomes"] if one["outcome"] == "time_to_first_token"]
    assert ttft["change"] == pytest.approx(-0.3, abs=0.02)
    assert ttft["low"] < ttft["change"] < ttft["high"] < 0
    assert (ttft["treated"], ttft["control"]) == (10, 10)


def test_decode_that_pays_for_it_is_rolled_back(fleet):
    fleet.store({Name.TTFT: -0.3, Name.ITL: 0.1})
    fleet.judge_at(10)
    verdict = fleet.report()["verdict"]
    assert (verdict["state"], verdict["reason"]) == ("regression", "inter_token_latency")


def test_hours_without_a_heartbeat_are_missing_and_leave_the_event_out(scene):
    fleet = Fleet(scene, 4)
    fleet.store(heard=lambda name, number: name != fleet.names[0] or number % 3 > 0)
    fleet.judge_at(4.2)
    assert [row["left_out"] for row in fleet.frozen()] == ["too_little_seen", None, None, None]


def test_what_changed_with_the_replacement_is_left_out(scene):
    fleet = Fleet(scene, 4, facts={"gpu": "B200"})
    fleet.store()
    fleet.judge_at(4.2)
    assert {row["left_out"] for row in fleet.frozen()} == {"changed"}


def test_no_event_without_outcomes_says_so(scene):
    fleet = Fleet(scene, 4)
    fleet.judge_at(4.2)
    assert {row["left_out"] for row in fleet.frozen()} == {"too_little_seen"}
    assert fleet.report()["verdict"]["state"] == "waiting"


def test_the_order_and_the_batches_in_which_outcomes_came_leave_no_trace(scene):
    fleet = Fleet(scene, 3)
    points = [
        Point((name, generation, 1, f"{name}-{generation}", "", instrument), start, token, count, total)
        for token, (name, start, generation, instrument, count, total) in enumerate(fleet.outcomes(), start=1)
    ]
    fleet.store()
    frozen = []
    for shuffled in (None, 1, 2):
        order = points if shuffled is None else _again(points, shuffled)
        with scene.db.write() as conn:
            for table in (outcomes_hour, outcomes_day, frozen_events):
                conn.execute(delete(table))
        for at in range(0, len(order), 977):
            with scene.db.write() as conn:
                merge(conn, order[at : at + 977], scene.now)
        fleet.judge_at(4.2)
        frozen.append(fleet.frozen())
    assert frozen[0] == frozen[1] == frozen[2]
    assert all(row["measured"]["values"]["time_to_first_token"] is not None for row in frozen[0])


def _again(points, seed):
    """In another order, a third of them twice."""
    draw = np.random.default_rng(seed)
    twice = [*points, *(points[index] for index in draw.choice(len(points), len(points) // 3))]
    return [twice[index] for index in draw.permutation(len(twice))]
