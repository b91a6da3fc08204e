# SPDX-License-Identifier: Apache-2.0
"""What rolling up costs, and what a report costs however much was transferred: CPU time of this process, and wall time.

Spans of single-rank transfers are stored as the writer stores them and rolled to minutes, hours and days. Then days are
written straight into their table, and a report is built from them: its cost must follow the number of deployments and
days, not of transfers.

    python benchmarks/collector/rollups.py [--spans 200000] [--deployments 1000] [--days 90] [--db postgresql]
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ingest import database
from sqlalchemy import insert

from kvflags_collector.feedback import report
from kvflags_collector.rollout import flags
from kvflags_collector.store import control_tables
from kvflags_collector.store.database import Database
from kvflags_collector.store.levels import DAY, HOUR, MINUTE, MONTH, Level
from kvflags_collector.store.rollup_tables import dirty_months, rollups_day, rollups_month
from kvflags_collector.store.rollups import roll
from kvflags_collector.store.spans import insert_spans, mark_minutes
from kvflags_collector.store.tally import tally
from kvflags_collector.store.telemetry_tables import spans
from kvflags_collector.store.transfers import Key, Transfer

NOON_US = 1_798_891_200 * 10**6
FLAG = "cross-layer-blocks"
# Of a deployment's transfers: prompts of one length, or of two.
CLASSES = ("1Mi", "16Mi")


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def span(number: int, deployments: int) -> tuple[Any, ...]:
    """A good transfer of one rank, in one of 60 minutes."""
    start = NOON_US * 1000 + number % 3600 * 10**9 + number
    values = {
        "start_ns": start,
        "trace_id": os.urandom(16),
        "span_id": number.to_bytes(8, "big"),
        "end_ns": start + int(random.lognormvariate(16, 0.5)),
        "name": "kv.transfer",
        "kind": 3,
        "status": 0,
        "arm": "control",
        "deployment": f"c/ns/d{number % deployments}",
        "generation": "r1",
        "epoch": 1,
        "engine_id": f"e{number % deployments}",
        "mode": "pull",
        "rank": 0,
        "world_size": 1,
        "bytes": 1 << 20,
        "descriptors": 8,
        "blocks": 8,
        "post_ns": int(random.lognormvariate(11, 0.5)),
        "backend": "FLASH_ATTN",
        "resource": b"r",
        "received_us": start // 1000,
    }
    return tuple(values.get(column.name) for column in spans.columns)


def rolling(db: Database, number: int) -> None:
    """Minutes from raw, then hours and days from those."""
    rows = [span(at, 8) for at in range(number)]
    with db.write() as conn:
        insert_spans(conn, rows)
        at, where = (list(spans.columns.keys()).index(name) for name in ("start_ns", "deployment"))
        mark_minutes(conn, {(row[at] // (60 * 10**9) * 60_000_000, row[where]) for row in rows}, [])
    settled = NOON_US + 10 * DAY.length_us
    for level, seconds in ((MINUTE, 0), (HOUR, 60), (DAY, 120)):
        cpu, _ = timed(lambda at=settled + seconds * 10**6: roll(db, at))
        print(f"{of(level):34} {cpu / number * 1e6:10,.2f} us/span {number / cpu:14,.0f} spans/CPU-s")


def of(level: Level) -> str:
    return {"minute_us": "minutes from raw spans", "hour_us": "hours from minutes", "day_us": "days from hours"}[
        level.time
    ]


def fleet(db: Database, deployments: int) -> None:
    """Half of them treated, each with a pin and two engines."""
    now = NOON_US
    with db.write() as conn:
        author = {"author": "bench", "reason": "bench"}
        flags.create(conn, key=FLAG, feature="cross_layer_blocks", baseline_s=0, quiet_s=0, **author, now=now)
        names = [f"c/ns/d{number}" for number in range(deployments)]
        conn.execute(
            insert(control_tables.deployments), [{"id": n, "first_seen_us": now, "last_seen_us": now} for n in names]
        )
        conn.execute(insert(control_tables.pins), [pin(name, number) for number, name in enumerate(names)])


def pin(name: str, number: int) -> dict[str, Any]:
    variant, arm = ("on", "treatment") if number % 2 else ("off", "control")
    fixed = {"flag": FLAG, "generation": "r1", "epoch": 1, "reason": "assigned", "revision": 1, "bucket": number}
    state = {"comparison": "included", "state": "pinned", "pinned_by": "bench", "pinned_us": NOON_US}
    return fixed | state | {"deployment": name, "variant": variant, "arm": arm}


def day_rows(deployments: int, days: int, transfers: int, classes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What each stands for makes no difference to its size: a histogram of 90 buckets or so."""
    for size_class in classes:
        for number in range(deployments):
            key = Key(f"c/ns/d{number}", "r1", 1, f"e{number}", "control", "pull", size_class, "FLASH_ATTN")
            drawn = [int(random.lognormvariate(16, 0.5)) for _ in range(200)]
            some = [Transfer(key, 0, True, None, d, 1 << 20, 8, 8, d // 200, weight=transfers // 200) for d in drawn]
            measures = tally(some)[key]
            for day in range(days):
                start = NOON_US // DAY.length_us * DAY.length_us + day * DAY.length_us
                yield {"day_us": start} | key._asdict() | measures._asdict()


def month(start_us: int, deployment: str) -> dict[str, Any]:
    """As the roller marks it: due once it is over."""
    return {"month_us": start_us, "deployment": deployment, "mark": 1, "due_us": start_us + MONTH.length_us}


def reporting(db: Database, deployments: int, days: int) -> None:
    fleet(db, deployments)
    now = NOON_US + (days + 1) * DAY.length_us
    for number, classes in ((1_000, CLASSES[:1]), (1_000, CLASSES), (1_000_000, CLASSES)):
        with db.write() as conn:
            conn.execute(rollups_day.delete())
            conn.execute(dirty_months.delete())
            rows = list(day_rows(deployments, days, number, classes))
            for at in range(0, len(rows), 10_000):
                conn.execute(insert(rollups_day), rows[at : at + 10_000])
            months = {(MONTH.start(row["day_us"]), row["deployment"]) for row in rows}
            conn.execute(rollups_month.delete())
            conn.execute(insert(dirty_months), [month(*one) for one in months])
        merging, _ = timed(lambda: roll(db, now))
        print(
            f"{'months from days':34} {merging / len(rows) * 1e6:10,.1f} us/row {len(rows) / merging:14,.0f} rows/CPU-s"
        )
        cpu, wall = timed(lambda: report.build(db, FLAG, now))
        print(
            f"a report over {deployments:,} deployments and {days} days ({len(rows):,} rows) of {number:>9,} transfers"
            f" each: {cpu:5.2f} CPU-s, {wall:5.2f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=200_000)
    parser.add_argument("--deployments", type=int, default=1000)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--db", choices=("sqlite", "postgresql"), default="sqlite")
    given = parser.parse_args()
    random.seed(7)
    for measured in (
        lambda db: rolling(db, given.spans),
        lambda db: reporting(db, given.deployments, given.days),
    ):
        with database(given.db) as (url, _):
            db = Database(url, upgrade=True)
            measured(db)
            db.close()


if __name__ == "__main__":
    main()
