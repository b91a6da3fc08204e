# SPDX-License-Identifier: Apache-2.0
"""What writing, one minute's roll-up and a span's place on disk cost as a database grows. In CPU time of this process.

Spans are those of `ingest.py`, spread over the last six days as they would have come, in the order of their starts.

    python benchmarks/collector/growth.py [--db postgresql] [--steps 10000,100000,1000000]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from ingest import body, database, stored

from kvflags_collector.ingest.spans.decode import Decoded, decode
from kvflags_collector.store.bulk import Bulk
from kvflags_collector.store.database import Database
from kvflags_collector.store.rollups import roll
from kvflags_collector.store.spans import insert_all, mark_minutes

REQUEST, GROUP, DAYS = 512, 8, 6
MINUTE_NS = 60 * 10**9
# The last spans of a step, over which it is measured.
LAST = 20_000


def moved(decoded: Decoded, first: int, begin_ns: int, gap_ns: int) -> Bulk:
    """The same request with spans of its own: the `first` of all and those after it, `gap_ns` apart."""
    rows: list[tuple[Any, ...]] = []
    for at, row in enumerate(decoded.rows, first):
        start = begin_ns + at * gap_ns
        rows.append((start, at.to_bytes(16, "big"), at.to_bytes(8, "big"), start + 5_000_000, *row[4:]))
    return Bulk(rows, decoded.names, decoded.constants)


def grow(url: str, steps: list[int]) -> None:
    decoded = decode(body(0, REQUEST), time.time_ns())
    gap_ns = DAYS * 86_400 * 10**9 // steps[-1]
    begin_ns = time.time_ns() - DAYS * 86_400 * 10**9
    db, number = Database(url, upgrade=True), 0
    empty = stored(url)
    print(f"{'spans':>12} {'write':>14} {'roll a minute':>16} {'on disk':>14}")
    for step in steps:
        cpu, since = time.process_time(), number
        while number < step:
            if number < step - LAST:
                cpu, since = time.process_time(), number
            with db.append() as conn:
                bulks = [moved(decoded, number + n * REQUEST, begin_ns, gap_ns) for n in range(GROUP)]
                insert_all(conn, bulks)
            number += GROUP * REQUEST
        write = (time.process_time() - cpu) / (number - since)
        minute = (begin_ns + (number - 1) * gap_ns) // MINUTE_NS * MINUTE_NS // 1000
        with db.append() as conn:
            mark_minutes(conn, {(minute, str(decoded.constants["deployment"]))}, [])
        cpu = time.process_time()
        roll(db, time.time_ns() // 1000)
        rolled = time.process_time() - cpu
        size = (stored(url) - empty) / number
        print(f"{number:12,} {write * 1e6:8.2f} us/span {rolled * 1e3:13.1f} ms {size:8.0f} B/span", flush=True)
    db.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--steps", default="10000,100000,1000000", help="numbers of spans, growing")
    given = parser.parse_args()
    with database(given.db) as (url, _):
        grow(url, [int(step) for step in given.steps.split(",")])


if __name__ == "__main__":
    main()
