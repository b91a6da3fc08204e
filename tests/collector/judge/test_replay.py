# SPDX-License-Identifier: Apache-2.0
"""Transfers replayed, and looks in between: the verdict is that of what happened, however it came and was looked at.

A small seeded fleet of the simulator goes as spans and outcome points through ingest's statements, the roller and the
judge, and must come to what the simulator's own functions come to.
"""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
from sqlalchemy import delete, select
from stored_fleet import DAY_US, HOUR_US, Fleet

from kvflags.telemetry.instruments import InstrumentName as Name
from kvflags_collector.feedback import report
from kvflags_collector.judge.conclude import conclude
from kvflags_collector.judge.freeze import judge
from kvflags_collector.rollout import flags
from kvflags_collector.store import frozen_tables as frozen
from kvflags_collector.store import rollup_tables as rolled
from kvflags_collector.store.outcome_tables import outcomes_day, outcomes_hour
from kvflags_collector.store.outcomes import Point, merge
from kvflags_collector.store.rollups import roll
from kvflags_collector.store.spans import insert_spans, mark_minutes
from kvflags_collector.store.telemetry_tables import spans
from kvflags_collector.verdict.decide import verdict
from kvflags_collector.verdict.events import AFTER_DAYS, BEFORE_DAYS
from kvflags_collector.verdict.evidence import Fire, Inputs
from kvflags_collector.verdict.simulate.exposure import expose
from kvflags_collector.verdict.simulate.fleet import draw
from kvflags_collector.verdict.simulate.guards import Guards
from kvflags_collector.verdict.simulate.plan import BLOCKS_A_DAY, Plan
from kvflags_collector.verdict.simulate.rollout import freeze
from kvflags_collector.verdict.treatment import Treatment

BETTER = {Name.TTFT: -0.3}
# Transfers of a block of 6 hours: 42 in each of 28 and 12 blocks are enough for an event to count.
MOVED = 42
GPUS = ("B200", "H100")
# One half of the deployments on the eighth day, and nobody later.
PLAN = Plan(deployments=18, days=AFTER_DAYS, ramp=((7, 0.5),), effect=-0.4, error_ratio=3.0, shift_rate=0.0)
TABLES = (
    spans,
    rolled.dirty_minutes,
    rolled.rollups_minute,
    rolled.dirty_hours,
    rolled.rollups_hour,
    rolled.dirty_days,
    rolled.rollups_day,
    rolled.dirty_months,
    rolled.rollups_month,
    outcomes_hour,
    outcomes_day,
    frozen.frozen_events,
    frozen.frozen_blocks,
    frozen.judgements,
)


def _emptied(conn):
    for table in TABLES:
        conn.execute(delete(table))


def _rows(conn, table):
    rows = conn.execute(select(table).order_by(*table.primary_key.columns)).mappings()
    return [{name: value for name, value in row.items() if name not in ("recorded_us", "checked_us")} for row in rows]


def test_hourly_looks_change_no_verdict(scene):
    fleet = Fleet(scene, 16)
    fleet.store(BETTER)
    found = []
    for looks in (np.arange(3.75, 7.26, 1 / 24), (3.75, 4.25, 6.75, 7.25)):
        with scene.db.write() as conn:
            for table in (frozen.frozen_events, frozen.frozen_blocks, frozen.judgements):
                conn.execute(delete(table))
        for day in looks:
            fleet.judge_at(day)
            conclude(scene.db, scene.now)
        with scene.db.read() as conn:
            said = [(row["state"], row["reason"]) for row in _rows(conn, frozen.judgements)]
            found.append((said, _rows(conn, frozen.frozen_events), _rows(conn, frozen.frozen_blocks)))
    assert found[0][0] == [("waiting", "too_short"), ("ready", "better")]
    assert found[0] == found[1]


class Sent:
    """A drawn fleet, as the spans and points that its engines would send; treated is who the ledger treats."""

    def __init__(self, scene):
        self.scene = scene
        drawn = draw(PLAN, np.random.default_rng(5))
        names = [f"c/ns/{number:02}" for number in range(PLAN.deployments)]
        with scene.db.write() as conn:
            salted = replace(flags.get(conn, scene.key), salt_arm="arm", salt_enrolment="enrolment")
            flags.revise(conn, salted, "salt", author="ann", reason="the same each time", now=scene.now)
        # Midnight, so that the simulator's days are the store's.
        scene.now = (scene.now // DAY_US + 1) * DAY_US - 60_000_000
        for name in names:
            scene.starts(name, "r1", facts=self._facts(drawn, names.index(name)))
        scene.aim(count=PLAN.deployments // 2)
        scene.passes(60)
        told = [scene.starts(name, "r2", facts=self._facts(drawn, at)) for at, name in enumerate(names)]
        treated = np.array([one["arm"] == "treatment" for one in told])
        n, blocks = drawn.transfers.shape
        self.fleet = replace(
            drawn,
            arrived=np.zeros(n, dtype=np.int64),
            lot=np.where(treated, 0.25, 0.75),
            transfers=np.full((n, blocks), float(MOVED)),
            errors=np.minimum(drawn.errors, 6.0),
            excess=np.clip(drawn.excess, 0.0, 6.0),
        )
        self.names, self.treated = names, treated
        self.event_us = scene.now
        self.start_us = scene.now - BEFORE_DAYS * DAY_US
        self.failed = self.fleet.errors + np.where(
            treated[:, None] & (np.arange(blocks) >= BEFORE_DAYS * BLOCKS_A_DAY), self.fleet.excess, 0.0
        )

    @staticmethod
    def _facts(drawn, at):
        return {"gpu": GPUS[int(drawn.stratum[at]) % 2]}

    def _hours(self):
        """(deployment's place, hour of the simulation, start, generation); the hour of the event is neither side's."""
        for at in range(len(self.names)):
            for hour in range((BEFORE_DAYS + AFTER_DAYS) * 24):
                later = hour >= BEFORE_DAYS * 24
                # What is counted after the event begins with the first full hour half an hour later.
                start = self.start_us + (hour + later) * HOUR_US
                yield at, hour, start, "r2" if later else "r1"

    def spans(self):
        rows, each = [], MOVED // 6
        for at, hour, start, generation in self._hours():
            block, within = divmod(hour, 6)
            failed = int(self.failed[at, block])
            for number in range(each):
                bad = within * each + number < failed
                ns = (start + number * 1_000_000) * 1000 + at
                given = {"start_ns": ns, "end_ns": ns + 2_000_000, "received_us": start + 3_000_000}
                given |= {"status": 2, "error_type": "transfer_failed"} if bad else {}
                rows.append(self.scene._span(self.names[at], generation, given))
        return rows

    def points(self):
        found = []
        for token, (at, hour, start, generation) in enumerate(self._hours(), start=1):
            later = generation == "r2" and self.treated[at]
            day = hour // 24
            each = {
                Name.TTFT: self.fleet.latency[at, day] + (self.fleet.effect[at] if later else 0.0),
                Name.ITL: self.fleet.inter_token[at, day],
                Name.OUTPUT_TOKENS: self.fleet.output[at, day] + log(1000),
                Name.KV_BLOCKS: log(1000),
            }
            for instrument, value in each.items():
                key = (self.names[at], generation, 1, f"{self.names[at]}-{generation}-decode", "", instrument.value)
                count = 1 if instrument in (Name.OUTPUT_TOKENS, Name.KV_BLOCKS) else 1000
                found.append(Point(key, start, token, count, round(np.exp(value) * count * 1e6)))
        return found

    def stored(self, rows, points, batch):
        """All of it, in batches of so many, rolled up in between; the report of ten days after the event."""
        db, names = self.scene.db, list(spans.columns.keys())
        at_ns, where = names.index("start_ns"), names.index("deployment")
        now = self.event_us + 10 * DAY_US
        with db.write() as conn:
            _emptied(conn)
        for at in range(0, len(rows), batch):
            some = rows[at : at + batch]
            with db.write() as conn:
                insert_spans(conn, some)
                mark_minutes(conn, {(row[at_ns] // (60 * 10**9) * 60_000_000, row[where]) for row in some}, [])
            if at % (3 * batch) == 0:
                roll(db, self.start_us + 60_000_000)
        for at in range(0, len(points), batch):
            with db.write() as conn:
                merge(conn, points[at : at + batch], now)
        # Each level is due a minute after the one below was made.
        for minutes in (6, 4, 2):
            roll(db, now - minutes * 60_000_000)
        while judge(db, now):
            pass
        with db.read() as conn:
            events = _rows(conn, frozen.frozen_events)
        return report.build(db, self.scene.key, now), events


def _again(values, seed):
    """In another order, a quarter of them twice."""
    draw = np.random.default_rng(seed)
    twice = [*values, *(values[index] for index in draw.choice(len(values), len(values) // 4))]
    return [twice[index] for index in draw.permutation(len(twice))]


def _stored(scene):
    sent = Sent(scene)
    sent.first = sent.stored(sent.spans(), sent.points(), 20_000)
    return sent


@pytest.fixture
def sent(copied):
    """`first`: its report and the frozen events, of what was stored in order."""
    return copied(_stored)


def test_transfers_replayed_in_another_order_in_other_batches_with_duplicates_give_the_same_report(sent):
    found, events = sent.first
    assert found["evidence"]["events"] == {"treatment": 9, "control": 9}
    again, replayed = sent.stored(_again(sent.spans(), 1), _again(sent.points(), 2), 7_919)
    assert replayed == events
    assert again == found


def test_a_simulated_fleet_through_spans_and_store_agrees_with_the_simulator(sent):
    found, events = sent.first
    exposure = expose(PLAN, sent.fleet)
    assert np.array_equal(exposure.treated[np.argsort(exposure.deployment)], sent.treated)
    simulated, _ = freeze(sent.fleet, exposure, sent.failed, np.ones(len(sent.names), dtype=np.bool_))
    measured = {row["deployment"]: row["measured"] for row in events if row["horizon"] == AFTER_DAYS}
    names = list(simulated.values)
    for at, values in enumerate(zip(*simulated.values.values(), strict=True)):
        own = measured[sent.names[int(simulated.deployment[at])]]
        # Times are stored in microseconds; counts are counts.
        assert [own["values"][name.value] for name in names] == pytest.approx(values, abs=1e-8)
        assert sum(own["failed"]) == simulated.failures[at]
    expected = verdict(_as_judged(sent, simulated, exposure))
    said = found["verdict"]
    assert (said["state"], said["reason"], said["returned"]) == (
        expected.state.value,
        expected.reason,
        list(expected.returned),
    )
    stored = {one["outcome"]: one for one in found["outcomes"]}
    for outcome, estimate in expected.compared.outcomes.items():
        own = stored[outcome.value]
        assert (own["standing"], own["treated"]) == (estimate.standing.value, estimate.effect.treated)
        assert own["change"] == pytest.approx(estimate.effect.ratio, abs=1e-6)


def _as_judged(sent, simulated, exposure):
    """What the simulator asks the verdict about, under the names that the store has for deployments and strata."""
    strata = tuple(f"FLASH_ATTN, {gpu}, gqa, vLLM 0.32, 4 heads, block 16" for gpu in GPUS)
    own = simulated.stratum % 2
    fired = Guards(sent.failed, sent.fleet.transfers, exposure).fired(PLAN.end)
    return Inputs(
        key=sent.scene.key,
        running=True,
        deployments=[
            Treatment(
                deployment=sent.names[deployment],
                generation="r2",
                treated=bool(treated),
                stratum=strata[stratum],
                effective=bool(treated),
            )
            for deployment, treated, stratum in zip(simulated.deployment, simulated.treated, own, strict=True)
        ],
        days=10.0,
        outcomes=True,
        events=replace(simulated, stratum=own, strata=strata),
        fires=[Fire(deployment=sent.names[one], says="Transfers fail more than before.") for one in fired],
    )
