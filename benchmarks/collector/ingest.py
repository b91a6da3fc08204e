# SPDX-License-Identifier: Apache-2.0
"""Acknowledged spans per CPU-second, end to end, and where the time goes. Prints a table, asserts nothing.

The collector's routes and writer run in a process of their own behind uvicorn; this one sends prepared requests over 16
keep-alive connections and reads the other's CPU time before and after, so what the load generator costs is not counted.
First as fast as answers come, then as many again at half that rate, where a request's time counts from when it was due.
The stages are then timed alone, on the same bodies, in this process. Both databases sync each commit.

    python benchmarks/collector/ingest.py [--db postgresql] [--spans 512] [--requests 400] [--gzip]
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import multiprocessing as mp
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import uvicorn
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from starlette.applications import Starlette

from kvflags.telemetry.attributes import ATTRIBUTES, Name
from kvflags_collector.ingest.http import routes
from kvflags_collector.ingest.keeper import Keeper
from kvflags_collector.ingest.limits import Limits, inflate
from kvflags_collector.ingest.receiver import Receiver
from kvflags_collector.ingest.spans import fallback
from kvflags_collector.ingest.spans.decode import decode
from kvflags_collector.ingest.writer import Writer
from kvflags_collector.store import postgresql, sqlite
from kvflags_collector.store.bulk import Bulk
from kvflags_collector.store.connect import opened
from kvflags_collector.store.database import Database
from kvflags_collector.store.rollups import roll
from kvflags_collector.store.spans import insert_all, insert_resources, mark_minutes

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from postgres_server import Server

CONNECTIONS = 16
ABSENT = {Name.ERROR_TYPE, Name.FAILURE, Name.LAYOUT_MISMATCH, Name.LAB, Name.GPU}
VALUES = {
    Name.ARM: "treatment",
    Name.VARIANT: "on",
    Name.MODE: "pull",
    Name.ROLE: "decode",
    Name.WORLD_SIZE: 1,
    Name.RANK: 0,
}


# How many values each of these has, by and large.
VARIED = {Name.BYTES: 200, Name.DESCRIPTORS: 200, Name.BLOCKS: 200, Name.POST_TIME: 1_000_000}


def attributes(place: str, number: int) -> list[KeyValue]:
    """Every attribute that an engine sends on a good transfer, with values of the usual size."""
    made = []
    for one in ATTRIBUTES:
        if one.place != place or one.name in ABSENT:
            continue
        plain = {"string": f"{one.name[-12:]}-value", "int": 1, "boolean": True}[one.type]
        value = VALUES.get(one.name, plain)
        if one.name in VARIED:
            # As transfers differ: a cache that remembers attributes must not look better than it is.
            value = 1 + hash((one.name, number)) % VARIED[one.name]
        kind = {str: "string_value", int: "int_value", bool: "bool_value"}[type(value)]
        made.append(KeyValue(key=one.name, value=AnyValue(**{kind: value})))
    return made


def body(number: int, spans: int) -> bytes:
    """One request: one engine, `spans` single-rank transfers of the last seconds."""
    request = ExportTraceServiceRequest()
    entry = request.resource_spans.add()
    entry.resource.attributes.extend(attributes("resource", number % 8))
    scope = entry.scope_spans.add()
    scope.scope.name = "kvflags"
    now = time.time_ns()
    for at in range(spans):
        serial = number * spans + at + 1
        span = scope.spans.add(trace_id=os.urandom(16), span_id=serial.to_bytes(8, "big"), name="kv.transfer", kind=3)
        span.start_time_unix_nano, span.end_time_unix_nano = now - serial * 1000, now - serial * 1000 + 5_000_000
        span.attributes.extend(attributes("span", serial))
    return request.SerializeToString()


def collector(url: str, listener: socket.socket) -> None:
    """The other process: routes, writer and database as `kvflags serve` puts them together."""
    db = Database(url, upgrade=True)
    writer = Writer(db)
    writer.start()
    config = uvicorn.Config(Starlette(routes=routes(Receiver(writer, Keeper(db)))), log_level="error")
    asyncio.run(uvicorn.Server(config).serve([listener]))


@contextmanager
def database(kind: str) -> Iterator[tuple[str, int | None]]:
    """A new one, and the process of its server."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/bench.db", None
        return
    server = Server(durable=True)
    try:
        server.execute("CREATE DATABASE bench")
        yield server.url("bench"), int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    finally:
        server.stop()


def stored(url: str) -> int:
    """Bytes of the database on disk."""
    with opened(url) as engine:
        return (sqlite if engine.dialect.name == "sqlite" else postgresql).size(engine)


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def server_cpu(pid: int | None) -> float:
    """Of a server and the processes that it has at present."""
    if pid is None:
        return 0.0
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(cpu_of(one) for one in (pid, *map(int, children)))


def memory_of(pid: int, what: str) -> float:
    """MiB of resident memory: VmRSS is now, VmHWM the most there ever was."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(what)]
    return int(line.split()[1]) / 1024


def end_to_end(bodies: list[bytes], spans: int, url: str, server: int | None, zipped: bool) -> dict[str, float]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        served = mp.get_context("fork").Process(target=collector, args=(url, listener), daemon=True)
        served.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces"
        headers = {"Content-Type": "application/x-protobuf"} | ({"Content-Encoding": "gzip"} if zipped else {})
        with httpx.Client(timeout=60) as client:
            client.post(address, content=b"", headers={"Content-Type": "application/x-protobuf"})
        at_rest, empty = memory_of(served.pid or 0, "VmRSS"), stored(url)
        full, half = bodies[::2], bodies[1::2]
        before, began = (cpu_of(served.pid or 0), server_cpu(server)), time.perf_counter()
        waits = send_all(address, full, headers)
        wall, after = time.perf_counter() - began, (cpu_of(served.pid or 0), server_cpu(server))
        paced = send_all(address, half, headers, every_s=2 * wall / len(full))
        at_most = memory_of(served.pid or 0, "VmHWM")
        served.terminate()
        served.join()
    number = len(full) * spans
    found = {"spans per CPU-second of the collector": number / (after[0] - before[0])}
    if server is not None:
        found["spans per CPU-second of the server"] = number / (after[1] - before[1])
    return found | {
        "spans per second": number / wall,
        "ack p50 ms": statistics.median(waits) * 1000,
        "ack p99 ms": percentile99(waits) * 1000,
        "ack p50 ms at half load": statistics.median(paced) * 1000,
        "ack p99 ms at half load": percentile99(paced) * 1000,
        "bytes per span on disk": (stored(url) - empty) / (len(bodies) * spans),
        "MiB at rest": at_rest,
        "MiB at most": at_most,
    }


def percentile99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def send_all(url: str, bodies: list[bytes], headers: dict[str, str], every_s: float = 0.0) -> list[float]:
    """How long each acknowledgement took. Each connection sends its share one after the other, as an exporter does.

    every_s: how far apart the requests are due, of all connections together; 0: each as soon as it can.
    """
    waits: list[float] = []
    # Made before the clock starts, and without certificates, which take longer to load than hundreds of requests.
    clients = [httpx.Client(timeout=60, trust_env=False, verify=False) for _ in range(CONNECTIONS)]
    start = time.perf_counter() + 0.1

    def send(first: int) -> None:
        with clients[first] as client:
            for at in range(first, len(bodies), CONNECTIONS):
                began = start + at * every_s if every_s else time.perf_counter()
                time.sleep(max(0.0, began - time.perf_counter()))
                answer = client.post(url, content=bodies[at], headers=headers)
                if answer.status_code != 200 or answer.content:
                    sys.exit(f"{answer.status_code} {answer.content!r}")
                waits.append(time.perf_counter() - began)

    threads = [threading.Thread(target=send, args=(first,)) for first in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return waits


def timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def stages(bodies: list[bytes], url: str, zipped: bool) -> dict[str, float]:
    """CPU seconds of each stage alone."""
    taken: dict[str, float] = {}
    limits, plain = Limits(), bodies
    if zipped:
        taken["inflate"] = timed(lambda: plain_of(bodies, limits))
        plain = plain_of(bodies, limits)
    taken["protobuf alone (part of decode)"] = timed(
        lambda: [ExportTraceServiceRequest.FromString(one) for one in plain]
    )
    taken["read by the fallback, not promoted"] = timed(lambda: [fallback.read(one) for one in plain])
    taken["decode and promote"] = timed(lambda: [decode(one, time.time_ns()) for one in plain])
    requests = [decode(one, time.time_ns()) for one in plain]
    db = Database(url, upgrade=True)

    def write() -> None:
        for at in range(0, len(requests), 8):
            group = requests[at : at + 8]
            with db.append() as conn:
                known = {pair for one in group for pair in one.resources.items()}
                insert_resources(conn, known, time.time_ns() // 1000)
                insert_all(conn, (Bulk(one.rows, one.names, one.constants) for one in group))
                mark_minutes(conn, set().union(*(one.minutes for one in group)), [])

    taken["write, 8 requests a commit"] = timed(write)
    taken["roll up (not on the way to the answer)"] = timed(lambda: roll(db, time.time_ns() // 1000))
    db.close()
    return taken


def plain_of(bodies: list[bytes], limits: Limits) -> list[bytes]:
    return [inflate(one, limits) for one in bodies]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--spans", type=int, default=512, help="spans in a request")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--gzip", action="store_true")
    given = parser.parse_args()
    bodies = [body(number, given.spans) for number in range(given.requests)]
    size = len(bodies[0]) / given.spans
    bodies = [gzip.compress(one, 6) for one in bodies] if given.gzip else bodies
    total = given.spans * given.requests
    print(f"{given.requests} requests of {given.spans} spans, {size:.0f} bytes a span, gzip: {given.gzip}")
    with database(given.db) as (url, server):
        for name, value in end_to_end(bodies, given.spans, url, server, given.gzip).items():
            print(f"{name:40} {value:12,.1f}")
    with database(given.db) as (url, _):
        for name, seconds in stages(bodies, url, given.gzip).items():
            print(f"{name:40} {seconds / total * 1e6:12,.2f} us/span {total / seconds:12,.0f} spans/CPU-s")


if __name__ == "__main__":
    main()
