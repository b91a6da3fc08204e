# SPDX-License-Identifier: Apache-2.0
"""A fleet whose hours are stored as the roller stores them: before and after a replacement, in both arms."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
from sqlalchemy import delete, select

from kvflags.telemetry.instruments import InstrumentName as Name
from kvflags_collector.feedback import report
from kvflags_collector.judge.conclude import conclude
from kvflags_collector.judge.freeze import judge
from kvflags_collector.rollout import flags
from kvflags_collector.rollout.tick import tick
from kvflags_collector.store.frozen_tables import frozen_events
from kvflags_collector.store.histogram import EMPTY
from kvflags_collector.store.outcome_tables import outcomes_day, outcomes_hour
from kvflags_collector.store.rollup_tables import dirty_days, presence, rollups_hour
from kvflags_collector.store.rollups import roll

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
_EMPTY = EMPTY.to_bytes()


class Fleet:
    """n deployments, replaced a minute after a ramp step, with hours of outcomes, transfers and heartbeats.

    facts_of: of a deployment by its name; then: facts that its replacement has instead; count: of the treated, half of
    all unless given; second: what every replacement registers and heartbeats instead.
    """

    def __init__(self, scene, n=20, *, days=3, facts_of=lambda _: {}, then=lambda _: {}, count=None, **second):
        self.scene, self.names = scene, [f"c/ns/{number:02}" for number in range(n)]
        self.facts = facts_of
        with scene.db.write() as conn:
            # Who is treated must not depend on chance here.
            salted = replace(flags.get(conn, scene.key), salt_arm="arm", salt_enrolment="enrolment")
            flags.revise(conn, salted, "salt", author="ann", reason="the same each time", now=scene.now)
        for name in self.names:
            scene.starts(name, "r1", facts=facts_of(name))
        scene.passes(60)
        scene.aim(count=n // 2 if count is None else count)
        replaced = {name: {"facts": facts_of(name) | then(name), **second} for name in self.names}
        self.told = {name: scene.starts(name, "r2", **replaced[name]) for name in self.names}
        self.event_us = scene.now
        self.first_us = self.event_us // HOUR_US * HOUR_US - 7 * DAY_US
        self.hours = range(7 * 24 + 2 + days * 24)

    def treated(self, name):
        return self.told[name]["arm"] == "treatment"

    def hour(self, number):
        """(start of the hour, generation)."""
        start = self.first_us + number * HOUR_US
        return start, "r2" if start >= self.event_us else "r1"

    def outcomes(self, effects=None, noise=0.02, seed=1, of=None):
        """[(deployment, hour, generation, instrument, count, sum in millionths)]; effects: {instrument: ratio}.

        of: the effects on one deployment by its name, in place of those on all.
        """
        draw, rows = np.random.default_rng(seed), []
        plain = {Name.TTFT: 0.4, Name.ITL: 0.01, Name.OUTPUT_TOKENS: 36_000.0, Name.KV_BLOCKS: 1000.0}
        for name in self.names:
            own = {instrument: draw.normal(0, noise / 10) for instrument in plain}
            own[Name.TTFT] = draw.normal(0, noise)
            daily = draw.normal(0, noise, len(self.hours) // 24 + 1)
            for number in self.hours:
                start, generation = self.hour(number)
                for instrument, value in plain.items():
                    later = generation == "r2"
                    mine = of(name) if of else effects or {}
                    change = log(1 + mine.get(instrument, 0)) if later and self.treated(name) else 0.0
                    change += own[instrument] if later and instrument != Name.KV_BLOCKS else 0.0
                    change += daily[number // 24] if instrument == Name.TTFT else 0.0
                    count = 1 if instrument in (Name.OUTPUT_TOKENS, Name.KV_BLOCKS) else 60
                    total = round(value * count * np.exp(change) * 1e6)
                    rows.append((name, start, generation, instrument.value, count, total))
        return rows

    def store(self, effects=None, *, failed=lambda name, number: 0, heard=lambda name, number: True, of=None):
        with self.scene.db.write() as conn:
            rows = [self._outcome(*row) for row in self.outcomes(effects, of=of)]
            conn.execute(outcomes_hour.insert(), rows)
            days = {(row["deployment"], row["instrument"]): row for row in rows}
            conn.execute(outcomes_day.insert(), [_day(row) for row in days.values()])
            every = [(name, number) for name in self.names for number in self.hours if heard(name, number)]
            conn.execute(rollups_hour.insert(), [self._moved(*one, failed(*one)) for one in every])
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
            "descriptors": 100 if generation == "r2" and self.treated(name) else 800,
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

    def acts(self, days, *, passes=2):
        """Everybody lives, the judge freezes and judges, and the ramper ticks; the flag after that."""
        self.judge_at(days)
        for name in self.names:
            self.scene.starts(name, "r2", facts=self.facts(name))
        for _ in range(passes):
            conclude(self.scene.db, self.scene.now)
            with self.scene.db.write() as conn:
                tick(conn, self.scene.now)
        return self.flag()

    def merge_days(self):
        """The stored hours become days, as the roller makes them."""
        starts = {start // DAY_US * DAY_US for start, _ in map(self.hour, self.hours)}
        rows = [{"day_us": day, "deployment": name, "mark": 1, "due_us": 0} for day in starts for name in self.names]
        with self.scene.db.write() as conn:
            conn.execute(dirty_days.insert(), rows)
        roll(self.scene.db, self.scene.now)

    def flag(self):
        with self.scene.db.read() as conn:
            return flags.get(conn, self.scene.key)

    def frozen(self):
        with self.scene.db.read() as conn:
            query = select(frozen_events).order_by(frozen_events.c.deployment, frozen_events.c.horizon)
            return [dict(row) for row in conn.execute(query).mappings()]

    def report(self):
        return report.build(self.scene.db, self.scene.key, self.scene.now)


def _day(row):
    values = {name: value for name, value in row.items() if name != "hour_us"}
    return values | {"day_us": row["hour_us"] // DAY_US * DAY_US}
