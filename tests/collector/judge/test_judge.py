# SPDX-License-Identifier: Apache-2.0
"""From stored hours to a verdict: events are frozen once, in whatever order their data came, and decide the report."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from sqlalchemy import delete, select, update

from kvflags.telemetry.instruments import InstrumentName as Name
from kvflags_collector.feedback import report
from kvflags_collector.judge.freeze import judge
from kvflags_collector.judge.moments import moments
from kvflags_collector.store.frozen_tables import frozen_events
from kvflags_collector.store.histogram import EMPTY
from kvflags_collector.store.outcome_tables import outcomes_day, outcomes_hour
from kvflags_collector.store.outcomes import Point, merge
from kvflags_collector.store.rollup_tables import presence, rollups_hour

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
_EMPTY = EMPTY.to_bytes()


class Fleet:
    """n deployments, replaced a minute after a ramp step, with hours of outcomes, transfers and heartbeats."""

    def __init__(self, scene, n=20, *, days=3, **second):
        self.scene, self.names = scene, [f"c/ns/{number:02}" for number in range(n)]
        for name in self.names:
            scene.starts(name, "r1")
        scene.passes(60)
        scene.aim(count=n // 2)
        self.told = {name: scene.starts(name, "r2", **second) for name in self.names}
        self.event_us = scene.now
        self.first_us = self.event_us // HOUR_US * HOUR_US - 7 * DAY_US
        self.hours = range(7 * 24 + 2 + days * 24)

    def treated(self, name):
        return self.told[name]["arm"] == "treatment"

    def hour(self, number):
        """(start of the hour, generation)."""
        start = self.first_us + number * HOUR_US
        return start, "r2" if start >= self.event_us else "r1"

    def outcomes(self, effects=None, noise=0.02, seed=1):
        """[(deployment, hour, generation, instrument, count, sum in millionths)]; effects: {instrument: ratio}."""
        draw, rows = np.random.default_rng(seed), []
        plain = {Name.TTFT: 0.4, Name.ITL: 0.01, Name.OUTPUT_TOKENS: 36_000.0, Name.KV_BLOCKS: 1000.0}
        for name in self.names:
            own = {instrument: draw.normal(0, noise / 10) for instrument in plain}
            own[Name.TTFT] = draw.normal(0, noise)
            for number in self.hours:
                start, generation = self.hour(number)
                for instrument, value in plain.items():
                    later = generation == "r2"
                    change = log(1 + (effects or {}).get(instrument, 0)) if later and self.treated(name) else 0.0
                    change += own[instrument] if later and instrument != Name.KV_BLOCKS else 0.0
                    count = 1 if instrument in (Name.OUTPUT_TOKENS, Name.KV_BLOCKS) else 60
                    total = round(value * count * np.exp(change) * 1e6)
                    rows.append((name, start, generation, instrument.value, count, total))
        return rows

    def store(self, effects=None, *, failed=0, heard=lambda name, number: True):
        with self.scene.db.write() as conn:
            rows = [self._outcome(*row) for row in self.outcomes(effects)]
            conn.execute(outcomes_hour.insert(), rows)
            days = {(row["deployment"], row["instrument"]): row for row in rows}
            conn.execute(outcomes_day.insert(), [_day(row) for row in days.values()])
            every = [(name, number) for name in self.names for number in self.hours if heard(name, number)]
            conn.execute(rollups_hour.insert(), [self._moved(*one, failed) for one in every])
            # The scene's own heartbeats are among these hours.
            conn.execute(delete(presence))
            conn.execute(presence.insert(), [self._heard(*one) for one in every])

    def _outcome(self, name, start, generation, instrument, count, total):
        return {
            "hour_us": start,
            "deployment": name,
            "generation": generation,
            "epoch": 1,
            "engine_id": f"{name}-{generation}",
            "arm": "",
            "instrument": instrument,
            "points": 1,
            "count": count,
            "sum_micro": total,
        }

    def _moved(self, name, number, failed):
        start, generation = self.hour(number)
        labels = dict.fromkeys(("arm", "direction", "backend"), "")
        sums = dict.fromkeys(("duration_sq_sum", "duration_log_sum", "duration_log_sq_sum"), 0.0)
        return {
            "hour_us": start,
            "deployment": name,
            "generation": generation,
            "epoch": 1,
            "engine_id": f"{name}-{generation}",
            "size_class": "le_1mib",
            **labels,
            "seen": 100,
            "transfers": 100,
            "incomplete": 0,
            "failed": failed,
            "late": 0,
            "errors": {},
            "bytes": 100 << 20,
            "descriptors": 800,
            "blocks": 800,
            "duration_ns_sum": 200_000_000,
            "post_ns_sum": 10_000_000,
            **sums,
            "duration_ns_min": 1,
            "duration_ns_max": 1,
            "duration_hist": _EMPTY,
            "post_hist": _EMPTY,
        }

    def _heard(self, name, number):
        start, generation = self.hour(number)
        place = {"hour_us": start, "deployment": name, "generation": generation, "engine_id": f"{name}-{generation}"}
        return place | {"minutes": 1, "starts": 0}

    def judge_at(self, days):
        self.scene.now = self.event_us + round(days * DAY_US)
        return judge(self.scene.db, self.scene.now)

    def frozen(self):
        with self.scene.db.read() as conn:
            query = select(frozen_events).order_by(frozen_events.c.deployment, frozen_events.c.horizon)
            return [dict(row) for row in conn.execute(query).mappings()]

    def report(self):
        return report.build(self.scene.db, self.scene.key, self.scene.now)


def _day(row):
    values = {name: value for name, value in row.items() if name != "hour_us"}
    return values | {"day_us": row["hour_us"] // DAY_US * DAY_US}


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


def test_a_better_fleet_becomes_ready(scene):
    fleet = Fleet(scene)
    fleet.store({Name.TTFT: -0.3})
    fleet.judge_at(4.2)
    early = fleet.report()
    assert (early["verdict"]["state"], early["verdict"]["reason"]) == ("waiting", "too_short")
    scene.now = fleet.event_us + 10 * DAY_US
    found = fleet.report()
    assert (found["verdict"]["state"], found["verdict"]["scope"]) == (
        "ready",
        ["FLASH_ATTN, gqa, vLLM 0.32, 4 heads, block 16"],
    )
    [ttft] = [one for one in found["outcomes"] if one["outcome"] == "time_to_first_token"]
    assert ttft["change"] == pytest.approx(-0.3, abs=0.02)
    assert ttft["low"] < ttft["change"] < ttft["high"] < 0
    assert (ttft["treated"], ttft["control"]) == (10, 10)


def test_decode_that_pays_for_it_is_rolled_back(scene):
    fleet = Fleet(scene)
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
