# SPDX-License-Identifier: Apache-2.0
"""Whole fleets for pages to show, seeded: what `verdict.simulate` draws, stored as a collector would have stored it.

    python tests/support/filled.py thousand fleet.db && kvflags serve --db sqlite:///fleet.db

Weeks of history cannot come by the wire, which refuses spans older than 7 days; so the ledger decides at times of the
past, hours and days go to the tables of the roller, and the judge freezes from them. Nothing of a verdict is written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, delete, insert, update

from kvflags.telemetry.instruments import InstrumentName as Name
from kvflags_collector.judge.freeze import judge
from kvflags_collector.rollout import flags, ledger
from kvflags_collector.rollout.leases import Timing
from kvflags_collector.store import control_tables
from kvflags_collector.store.control_tables import deployments, engines, registrations
from kvflags_collector.store.database import Database
from kvflags_collector.store.histogram import Histogram
from kvflags_collector.store.levels import MONTH
from kvflags_collector.store.measures import Measures, merge
from kvflags_collector.store.outcome_tables import outcomes_day, outcomes_hour
from kvflags_collector.store.rollup_tables import dirty_months, presence, rollups_day, rollups_hour
from kvflags_collector.store.rollups import roll
from kvflags_collector.times import now_us
from kvflags_collector.verdict.simulate.fleet import draw
from kvflags_collector.verdict.simulate.plan import BASELINE_DAYS, Plan

__all__ = ["FLEETS", "KEY", "Fill", "fill"]

KEY = "cross-layer-blocks"
HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
# Values of which the histograms of an hour are made; each hour has a multiple of them.
_SHAPE = 40
_BACKENDS = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION")
_PLAIN = {Name.TTFT: 0.4, Name.ITL: 0.01, Name.OUTPUT_TOKENS: 36_000.0, Name.KV_BLOCKS: 1000.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """plan: what is true of the fleet. after: days since it was replaced. percent: treated from then on.

    hourly: how many have hours, which the judge needs; the others have days alone. history: days before the event.
    silent: treated deployments that were not heard since the day after.
    """

    plan: Plan = field(default_factory=Plan)
    after: float = 7.5
    percent: float = 50.0
    hourly: int | None = None
    history: int = BASELINE_DAYS
    silent: int = 0


FLEETS = {
    "healthy": Fill(plan=Plan(deployments=56, days=16, effect=-0.15, error_ratio=0.2, shift_rate=0.0)),
    "regression": Fill(plan=Plan(deployments=24, days=16, effect=0.35, error_ratio=6.0, shift_rate=0.0)),
    "mismatch": Fill(plan=Plan(deployments=48, days=16, effect=-0.12, shift_rate=0.0), silent=16, hourly=4),
    "waiting": Fill(plan=Plan(deployments=6, days=16), after=1),
    "thousand": Fill(plan=Plan(deployments=1000, days=16, effect=-0.05), hourly=32, history=80),
}


def fill(db: Database, what: Fill, now_us: int, seed: int = 7) -> None:
    """Make `db`, which is empty, the database of such a fleet as of `now_us`."""
    made = _Fleet(db, what, now_us, seed)
    made.begin()
    made.replace()
    made.store()
    roll(db, now_us)
    while judge(db, now_us):
        pass
    made.heard_last()


class _Fleet:
    def __init__(self, db: Database, what: Fill, now_us: int, seed: int) -> None:
        self._db, self._what, self._now_us = db, what, now_us
        self._rng = np.random.default_rng(seed)
        self._true = draw(what.plan, self._rng)
        # One each: how many days a fleet spans depends on the time of day, and shifts nobody else's numbers.
        self._chance = [np.random.default_rng([seed, at]) for at in range(what.plan.deployments)]
        self._names = [f"{'eu' if at % 3 else 'us'}/llm-{at % 7}/chat-{at:04}" for at in range(what.plan.deployments)]
        # On the hour after: the judge counts from the next full hour.
        self._event_us = (now_us - round(what.after * DAY_US)) // HOUR_US * HOUR_US
        self._told: list[dict[str, Any]] = []
        self._shapes = {treated: self._shape(2_100_000 if treated else 2_400_000) for treated in (False, True)}

    def begin(self) -> None:
        """The flag, and every deployment observed under its first generation."""
        now = self._event_us - self._what.history * DAY_US - HOUR_US
        by = {"author": "ann", "now": now}
        with self._db.write() as conn:
            made = {"key": KEY, "feature": "cross_layer_blocks", "baseline_s": 0, "quiet_s": 0}
            flags.create(conn, **made, reason="try it on our fleet", **by)
            # Which arm each deployment is dealt must not depend on chance.
            document = flags.get(conn, KEY).to_json() | {"salt_arm": "7", "salt_enrolment": "7"}
            conn.execute(update(control_tables.flags).values(document=document))
        self._starts("r1", now, lives_us=self._event_us - now)

    def replace(self) -> None:
        """The target, and a second generation that carries it out."""
        now = self._event_us - 60_000_000
        with self._db.write() as conn:
            # Who was not heard for a day is taken for gone, and dealt nothing.
            conn.execute(update(deployments).values(last_seen_us=now))
            aim = flags.target(self._what.percent, None)
            flags.set_target(conn, KEY, aim, author="ann", reason="half of the fleet", now=now)
        self._told = self._starts("r2", self._event_us, lives_us=self._now_us - self._event_us)

    def store(self) -> None:
        """Hours and days of what each transferred, what its users felt, and when it was heard."""
        self._by_name = dict(zip(self._names, self._told, strict=True))
        within = self._what.hourly or len(self._names)
        with self._db.write() as conn:
            conn.execute(delete(presence))
            for at, name in enumerate(self._names):
                hours = list(self._hours(at)) if at < within else []
                if hours:
                    conn.execute(insert(rollups_hour), [self._moved("hour_us", name, *one) for one in hours])
                    conn.execute(insert(presence), [self._present(name, start, of) for start, of, _ in hours])
                    conn.execute(insert(outcomes_hour), [row for hour in hours for row in self._felt(at, *hour[:2])])
                days = [self._moved("day_us", name, *one) for one in self._days(at, hours)]
                conn.execute(insert(rollups_day), days)
                conn.execute(
                    insert(dirty_months), [_month(name, at) for at in {MONTH.start(d["day_us"]) for d in days}]
                )
                if hours:
                    felt = self._felt(at, self._event_us // DAY_US * DAY_US, "r2")
                    conn.execute(insert(outcomes_day), [_of_day(row) for row in felt])

    def heard_last(self) -> None:
        """The latest heartbeats, so that the engines live while pages are looked at; not of those that fell silent."""
        treated = [name for name, told in self._by_name.items() if told["variant"] == "on"]
        silent = treated[: self._what.silent]
        with self._db.write() as conn:
            conn.execute(update(deployments).values(last_seen_us=self._now_us))
            gone = deployments.c.id.in_(silent)
            conn.execute(update(deployments).where(gone).values(last_seen_us=self._event_us + DAY_US))
            # For as long as any test may look at them.
            lives = {"lease_until_us": self._now_us + DAY_US}
            for table in (engines, registrations):
                here = (table.c.generation == "r2", table.c.deployment.not_in(silent))
                conn.execute(update(table).where(*here).values(lives))
            conn.execute(update(engines).where(engines.c.lease_until_us > self._now_us).values(last_us=self._now_us))

    def _starts(self, generation: str, now: int, *, lives_us: int) -> list[dict[str, Any]]:
        told = []
        with self._db.write() as conn:
            for at, name in enumerate(self._names):
                for role in ("prefill", "decode"):
                    facts = {"backend": _BACKENDS[self._true.stratum[at]], "block_size": 16, "gpu": "H100"}
                    facts |= {"vllm": "0.32.0", "nixl": "1.5.1", "model_class": "gqa", "kv_heads_per_rank": 4}
                    facts |= {"connector": "NixlConnector", "isolation": "recreate", "transport": "rdma"}
                    body = {"registration_id": f"{name}-{generation}-{role}", "deployment": name, "facts": facts}
                    body |= {"generation": generation, "role": role, "features": ["cross_layer_blocks"]}
                    decision = ledger.register(conn, body, now, Timing())["decisions"][0]
                    self._beat(conn, body["registration_id"], decision, now, lives_us)
                told.append(decision)
        return told

    @staticmethod
    def _beat(conn: Connection, registration: str, told: dict[str, Any], now: int, lives_us: int) -> None:
        whole = told["variant"] == "on"
        wanted = "BHLNC" if whole else "LBHNC"
        layout = {"requested": wanted, "resolved": wanted, "regions": 1 if whole else 32, "layers": 32}
        body = {"engine_id": registration, "seq": now // 1_000_000, "ranks": 1}
        body |= {"layout": layout | {"effective": whole}, "exercised": {"ok": 9000, "errors": 1}}
        # A lease is three heartbeats.
        ledger.heartbeat(conn, registration, body, now, Timing(heartbeat_s=lives_us / 3e6))

    def _hours(self, at: int) -> Iterator[tuple[int, str, Measures]]:
        """(start, generation, what was transferred) of each full hour around the event, up to now."""
        first = self._event_us - BASELINE_DAYS * DAY_US
        for start in range(first, self._now_us - HOUR_US, HOUR_US):
            later = start >= self._event_us
            yield start, "r2" if later else "r1", self._measured(at, (start - first) // HOUR_US, later=later)

    def _days(self, at: int, hours: list[tuple[int, str, Measures]]) -> Iterator[tuple[int, str, Measures]]:
        """Merged from hours where there are any, and drawn where there are none."""
        known: dict[tuple[int, str], list[Measures]] = {}
        for start, generation, measures in hours:
            known.setdefault((start // DAY_US * DAY_US, generation), []).append(measures)
        for (start, generation), parts in known.items():
            yield start, generation, merge(parts)
        first = self._event_us - self._what.history * DAY_US
        until = min(known, default=(self._now_us // DAY_US * DAY_US, ""))[0]
        for start in range(first // DAY_US * DAY_US, until, DAY_US):
            later = start >= self._event_us
            yield start, "r2" if later else "r1", self._measured(at, 0, later=later)

    def _measured(self, at: int, hour: int, *, later: bool) -> Measures:
        block = hour // 6 % self._true.transfers.shape[1]
        treated = later and self._treated(at)
        failed = int(
            self._chance[at].poisson(self._true.errors[at, block] / 6 + treated * self._true.excess[at, block] / 6)
        )
        times = max(1, int(self._true.transfers[at, block] // 6) // _SHAPE)
        good = times * _SHAPE
        took, took_hist = self._shapes[treated]
        post_ns = 60_000 if treated else 190_000
        return Measures(
            seen=good + failed,
            transfers=good + failed,
            incomplete=0,
            failed=failed,
            late=0,
            errors={"transfer_failed": failed} if failed else {},
            bytes=good * (8 << 20),
            descriptors=good * (40 if treated else 1280),
            blocks=good * 40,
            duration_ns_sum=times * int(took.sum()),
            post_ns_sum=good * post_ns,
            duration_sq_sum=times * float((took.astype(float) ** 2).sum()),
            duration_log_sum=times * float(np.log(took).sum()),
            duration_log_sq_sum=times * float((np.log(took) ** 2).sum()),
            duration_ns_min=int(took.min()),
            duration_ns_max=int(took.max()),
            duration_hist=_often(took_hist, times),
            post_hist=_often(Histogram.of([post_ns]), good),
        )

    def _shape(self, median_ns: int) -> tuple[npt.NDArray[np.int64], Histogram]:
        took = (median_ns * np.exp(self._rng.normal(0, 0.3, _SHAPE))).astype(np.int64)
        return took, Histogram.of(took.tolist())

    def _felt(self, at: int, start: int, generation: str) -> Iterator[dict[str, Any]]:
        day = min(max(0, (start - self._event_us) // DAY_US + BASELINE_DAYS), self._true.latency.shape[1] - 1)
        treated = generation == "r2" and self._treated(at)
        for name, plain in _PLAIN.items():
            change = {
                Name.TTFT: self._true.latency[at, day] + treated * self._true.effect[at],
                Name.ITL: self._true.inter_token[at, day] + treated * self._true.inter_token_effect,
                Name.OUTPUT_TOKENS: self._true.output[at, day],
            }.get(name, 0.0)
            count = 1 if name in {Name.OUTPUT_TOKENS, Name.KV_BLOCKS} else 600
            key = {"hour_us": start, "deployment": self._names[at], "generation": generation, "epoch": 1}
            key |= {"engine_id": f"{self._names[at]}-{generation}-decode", "arm": "", "instrument": name.value}
            yield key | {"points": 60, "count": count, "sum_micro": round(plain * count * np.exp(change) * 1e6)}

    def _treated(self, at: int) -> bool:
        return bool(self._told[at]["arm"] == "treatment")

    def _present(self, name: str, start: int, generation: str) -> dict[str, Any]:
        place = {"hour_us": start, "deployment": name, "generation": generation}
        return place | {"engine_id": f"{name}-{generation}-decode", "minutes": (1 << 60) - 1, "starts": 0}

    def _moved(self, time: str, name: str, start: int, generation: str, measures: Measures) -> dict[str, Any]:
        told = self._by_name[name]
        key = {time: start, "deployment": name, "generation": generation, "epoch": 1, "direction": "pull"}
        key |= {"engine_id": f"{name}-{generation}-decode", "size_class": "le_16mib", "backend": "FLASH_ATTN"}
        return key | {"arm": told["arm"] or "" if generation == "r2" else ""} | measures._asdict()


def _often(one: Histogram, times: int) -> bytes:
    return Histogram(one.offset, one.counts * np.uint64(times)).to_bytes()


def _of_day(row: dict[str, Any]) -> dict[str, Any]:
    return {("day_us" if name == "hour_us" else name): value for name, value in row.items()}


def _month(deployment: str, start_us: int) -> dict[str, Any]:
    """Its days are to be merged once it is over."""
    return {"month_us": start_us, "deployment": deployment, "mark": 1, "due_us": start_us + MONTH.length_us}


def _main(name: str, path: str) -> None:
    db = Database(f"sqlite:///{path}", upgrade=True)
    fill(db, FLEETS[name], now_us())
    db.close()


if __name__ == "__main__":
    _main(*sys.argv[1:])
