# SPDX-License-Identifier: Apache-2.0
"""Ways of writing decoded spans into PostgreSQL, side by side: CPU of this process and of the server for each span.

Eight requests a commit, each commit synced, one unique index and daily partitions as they are. Ours is the last.

    python benchmarks/collector/postgresql.py [--requests 80] [--rounds 3]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from ingest import body, database, server_cpu
from sqlalchemy import Connection

from kvflags_collector.ingest.spans.decode import Decoded, decode
from kvflags_collector.store import bulk_postgresql as ours
from kvflags_collector.store import partitions
from kvflags_collector.store.bulk import Bulk
from kvflags_collector.store.database import Database
from kvflags_collector.store.telemetry_tables import spans

SPANS, GROUP = 512, 8
NAMES = [column.name for column in spans.columns]
STAGE = "CREATE TEMPORARY TABLE IF NOT EXISTS staged (LIKE spans INCLUDING DEFAULTS) ON COMMIT DELETE ROWS"
MOVE = "INSERT INTO spans SELECT * FROM staged ORDER BY start_ns, trace_id, span_id ON CONFLICT DO NOTHING"

Group = Sequence[Decoded]


def whole(group: Group) -> list[tuple[object, ...]]:
    """The rows of a group with every column."""
    made = [dict(zip(one.names, row, strict=True)) | one.constants for one in group for row in one.rows]
    return [tuple(row.get(name) for name in NAMES) for row in made]


def copied(conn: Connection, table: str, rows: list[tuple[object, ...]], *, binary: bool = False) -> None:
    form = " (FORMAT BINARY)" if binary else ""
    with conn.connection.cursor().copy(f"COPY {table} ({', '.join(NAMES)}) FROM STDIN{form}") as copying:
        if binary:
            # JSON travels as text.
            kinds = [str(column.type.compile(conn.dialect)).lower() for column in spans.columns]
            copying.set_types(["text" if kind == "json" else kind for kind in kinds])
        for row in rows:
            copying.write_row(row)


def inserted(conn: Connection, group: Group) -> None:
    marks = ", ".join("%s" if name != "effective" else "%s::int::bool" for name in NAMES)
    conn.exec_driver_sql(
        f"INSERT INTO spans ({', '.join(NAMES)}) VALUES ({marks}) ON CONFLICT DO NOTHING", whole(group)
    )


def staged(conn: Connection, group: Group) -> None:
    conn.exec_driver_sql(STAGE)
    copied(conn, "staged", whole(group))
    conn.exec_driver_sql(MOVE)


def straight(*, binary: bool) -> Callable[[Connection, Group], None]:
    return lambda conn, group: copied(conn, "spans", sorted(whole(group)), binary=binary)


def as_we_do(conn: Connection, group: Group) -> None:
    ours.insert(conn, [Bulk(one.rows, one.names, one.constants) for one in group])


WAYS: dict[str, Callable[[Connection, Group], None]] = {
    "INSERT, executemany": inserted,
    "COPY by way of a staging table": staged,
    "COPY straight, binary": straight(binary=True),
    "COPY straight, text": straight(binary=False),
    "ours": as_we_do,
}


def timed(requests: Group, way: Callable[[Connection, Group], None]) -> tuple[float, float]:
    """Seconds of CPU here and at the server."""
    with database("postgresql") as (url, server):
        db = Database(url, upgrade=True)
        with db.append() as conn:
            partitions.ensure(conn, {time.time_ns() // partitions.DAY_NS + day for day in (-1, 0)})
        here, there = time.process_time(), server_cpu(server)
        for at in range(0, len(requests), GROUP):
            with db.append() as conn:
                way(conn, requests[at : at + GROUP])
        here, there = time.process_time() - here, server_cpu(server) - there
        db.close()
    return here, there


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    requests = [decode(body(number, SPANS), time.time_ns()) for number in range(given.requests)]
    took = defaultdict(list)
    for _ in range(given.rounds):
        for name, way in WAYS.items():
            took[name].append(timed(requests, way))
    for name, rounds in took.items():
        here, there = (statistics.median(one) * 1e6 / SPANS / len(requests) for one in zip(*rounds, strict=True))
        print(
            f"{name:34} here {here:6.2f}   server {there:6.2f} us/span   both {1e6 / (here + there):9,.0f} spans/CPU-s"
        )


if __name__ == "__main__":
    main()
