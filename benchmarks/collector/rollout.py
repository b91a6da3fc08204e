# SPDX-License-Identifier: Apache-2.0
"""What the control plane costs: evaluation, OFREP, registrations with a pin, and a fleet that heartbeats.

Each server is a real `kvflags serve` in a process of its own, asked over HTTP by threads of this one; its CPU time is
read from the system. Where flagd's evaluator is installed (openfeature-flagd-core), it evaluates the same share beside.

    python benchmarks/collector/rollout.py [evaluate|ofrep|register|fleet ...] [--seconds 5]
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Table, insert, select

from kvflags.flags import BUCKETS, Assignment, Comparison, Flag, Phase, Standing, bucket, evaluate
from kvflags_cli.settings import own
from kvflags_collector.store import control_tables as tables
from kvflags_collector.store.database import Database

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from postgres_server import Server, programs

WHO = {"author": "bench", "reason": "bench"}
FACTS = {
    "vllm": "0.32.0",
    "model_class": "gqa",
    "kv_heads_per_rank": 4,
    "connector": "NixlConnector",
    "isolation": "recreate",
}
LAYOUT = {"requested": "LBHNC", "resolved": "LBHNC", "regions": 8, "layers": 8, "effective": False}
TICKS = os.sysconf("SC_CLK_TCK")


class Collector:
    """`kvflags serve` on this database; `cpu` in seconds, `memory` in MiB."""

    def __init__(self, url: str) -> None:
        words = [sys.executable, "-m", "kvflags_cli", "serve", "--db", url, "--port", "0"]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        found = None
        while found is None:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", self._process.stdout.readline())
        self.port = int(found[1])

    @property
    def cpu(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def memory(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


class Client:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        token = own(f"http://127.0.0.1:{port}", "the benchmark").token
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def __call__(self, method: str, path: str, body: Any, **headers: str) -> tuple[int, http.client.HTTPMessage]:
        self._http.request(method, path, json.dumps(body), self._headers | headers)
        answer = self._http.getresponse()
        answer.read()
        return answer.status, answer.headers


@contextmanager
def database(kind: str) -> Iterator[str]:
    """A new one: SQLite with its syncs, or a PostgreSQL of its own with them."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{folder}/bench.db"
            Database(url, upgrade=True).close()
            yield url
        return
    server = Server(durable=True)
    try:
        server.execute("CREATE DATABASE bench")
        Database(server.url("bench"), upgrade=True).close()
        yield server.url("bench")
    finally:
        server.stop()


@contextmanager
def serving(url: str) -> Iterator[Collector]:
    """A collector with one running flag and one deployment, observed."""
    collector = Collector(url)
    try:
        ask = Client(collector.port)
        flag = {"key": "clb", "feature": "cross_layer_blocks", "baseline_s": 0, "quiet_s": 0}
        assert ask("POST", "/api/v1/flags", flag | WHO)[0] == 201
        for role in ("prefill", "decode"):
            assert ask("POST", "/api/v1/engines/register", registration(role, "c/ns/a", role))[0] == 200
            assert ask("POST", f"/api/v1/engines/{role}/heartbeat", beat(role, 1))[0] == 200
        assert ask("PUT", "/api/v1/flags/clb/target", {"percent": 50, **WHO})[0] == 200
        yield collector
    finally:
        collector.close()


def registration(name: str, deployment: str, role: str = "prefill") -> dict[str, Any]:
    body = {"registration_id": name, "deployment": deployment, "generation": "g", "role": role, "facts": FACTS}
    return body | {"features": ["cross_layer_blocks"]}


def beat(name: str, seq: int) -> dict[str, Any]:
    facts = {"backend": "FLASH_ATTN", "block_size": 16}
    body = {"seq": seq, "engine_id": name, "facts": facts, "layout": LAYOUT, "exercised": {"ok": seq, "errors": 0}}
    return body | {"clock": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def load(port: int, clients: int, seconds: float, act: Callable[[Client, int], object]) -> list[float]:
    """`act` again and again by each client; how long each took, in seconds. `act` gets a number nobody else has."""
    numbers, took, end = itertools.count(1), [], time.perf_counter() + seconds

    def work() -> None:
        client = Client(port)
        while (began := time.perf_counter()) < end:
            act(client, next(numbers))
            took.append(time.perf_counter() - began)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took


def report(what: str, collector: Collector, run: Callable[[], list[float]]) -> None:
    cpu, began = collector.cpu, time.perf_counter()
    took = run()
    wall, cpu = time.perf_counter() - began, collector.cpu - cpu
    p99 = statistics.quantiles(took, n=100)[98] if len(took) > 1 else took[0]
    print(
        f"{what:44} {len(took) / wall:8,.0f}/s   p50 {statistics.median(took) * 1e3:7.1f} ms   p99 {p99 * 1e3:7.1f} ms"
        f"   {cpu / len(took) * 1e3:6.2f} ms CPU each"
    )


def evaluation(seconds: float) -> None:
    flag = Flag(key="clb", feature="cross_layer_blocks", salt_enrolment="e", salt_arm="a", phase=Phase.RUNNING)
    dealt = Assignment(
        deployment="c/ns/a", arm="treatment", comparison=Comparison.INCLUDED, reason="assigned", bucket=1, backend="F"
    )
    standing = Standing(assignment=dealt)
    units = [f"c/ns/{number}" for number in range(1000)]
    each("a bucket below a share", seconds, lambda: [bucket("a", unit) < BUCKETS // 4 for unit in units], len(units))
    each("the whole precedence, with its trace", seconds, lambda: [evaluate(flag, standing) for _ in units], len(units))
    try:
        from openfeature.contrib.tools.flagd.core import FlagdCore  # noqa: PLC0415 - optional
        from openfeature.evaluation_context import EvaluationContext  # noqa: PLC0415 - optional
    except ImportError:
        print("openfeature-flagd-core is not installed: pip install openfeature-flagd-core")
        return
    core = FlagdCore()
    core.set_flags(json.dumps({"flags": {"clb": share(25)}}))
    contexts = [EvaluationContext(unit) for unit in units]
    each(
        "flagd-core, the same share",
        seconds,
        lambda: [core.resolve_boolean_value("clb", False, c) for c in contexts],
        1000,
    )


def share(percent: int) -> dict[str, Any]:
    """A flag of flagd's, on for a share."""
    parts = [["on", percent], ["off", 100 - percent]]
    variants = {"on": True, "off": False}
    return {"state": "ENABLED", "variants": variants, "defaultVariant": "off", "targeting": {"fractional": parts}}


def each(what: str, seconds: float, run: Callable[[], object], number: int) -> None:
    end, best = time.perf_counter() + seconds / 3, timed(run)
    while time.perf_counter() < end:
        best = min(best, timed(run))
    print(f"{what:44} {best / number * 1e9:8,.0f} ns")


def timed(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def ofrep(seconds: float) -> None:
    asked = {"context": {"targetingKey": "c/ns/a"}}
    path = "/ofrep/v1/evaluate/flags"
    with database("sqlite") as url, serving(url) as collector:
        tag = Client(collector.port)("POST", path, asked)[1]["ETag"]
        for what, headers, status in (
            ("OFREP, all flags", {}, 200),
            ("OFREP, not changed", {"If-None-Match": tag}, 304),
        ):

            def act(client: Client, _: int, headers: Any = headers, status: int = status) -> None:
                assert client("POST", path, asked, **headers)[0] == status

            report(what, collector, lambda act=act: load(collector.port, 4, seconds, act))


def register(seconds: float) -> None:
    for kind in ("sqlite", "postgresql") if programs() else ("sqlite",):
        for clients in (1, 8, 64):
            with database(kind) as url, serving(url) as collector:

                def act(client: Client, number: int) -> None:
                    body = registration(f"r{number}", f"c/ns/d{number}")
                    assert client("POST", "/api/v1/engines/register", body)[0] == 200

                what = f"register and pin, {kind}, {clients} at once"
                report(what, collector, lambda act=act, n=clients: load(collector.port, n, seconds, act))


def fleet(seconds: float, deployments: int = 1000, each_has: int = 10) -> None:
    """All of it heartbeats every 30 s: the rows of one engine that registered are copied for all others."""
    number = deployments * each_has
    with database("sqlite") as url:
        with serving(url):
            pass
        db = Database(url)
        populate(db, deployments, each_has)
        db.close()
        collector = Collector(url)
        try:
            due = itertools.count()
            began, cpu, late = time.perf_counter(), collector.cpu, []

            def act(client: Client, at: int) -> None:
                wait = began + next(due) * 30 / number - time.perf_counter()
                time.sleep(max(wait, 0))
                late.append(max(-wait, 0.0))
                assert client("POST", f"/api/v1/engines/x{at % number}/heartbeat", beat(f"x{at % number}", 2))[0] == 200

            took = load(collector.port, 8, seconds, act)
            wall = time.perf_counter() - began
            print(
                f"{number:,} engines of {deployments:,} deployments: {len(took) / wall:,.0f} heartbeats/s of"
                f" {number / 30:,.0f} due, the last {late[-1]:.1f} s late; {(collector.cpu - cpu) / wall:.2f} cores,"
                f" {(collector.cpu - cpu) / len(took) * 1e3:.2f} ms CPU each, {collector.memory:,.0f} MiB"
            )
        finally:
            collector.close()


def populate(db: Database, deployments: int, each_has: int) -> None:
    """The rows of the deployment that is there, and of its decode engine, again and again."""
    with db.write() as conn:

        def copies(table: Table, column: str, of: str, number: int, **fresh: Callable[[int], Any]) -> None:
            row = dict(conn.execute(select(table).where(table.c[column] == of)).mappings().first())
            conn.execute(
                insert(table), [row | {name: make(at) for name, make in fresh.items()} for at in range(number)]
            )

        def deployment(at: int) -> str:
            return f"c/ns/f{at % deployments}"

        def name(at: int) -> str:
            return f"x{at}"

        def role(at: int) -> str:
            return ("prefill", "decode")[at // deployments % 2]

        def until(_: int) -> int:
            return (int(time.time()) + 3600) * 10**6

        number = deployments * each_has
        copies(tables.deployments, "id", "c/ns/a", deployments, id=deployment)
        copies(tables.pins, "deployment", "c/ns/a", deployments, id=lambda at: 1000 + at, deployment=deployment)
        lives = {"deployment": deployment, "role": role, "lease_until_us": until}
        copies(tables.registrations, "id", "decode", number, id=name, **lives)
        copies(tables.engines, "engine_id", "decode", number, registration=name, engine_id=name, **lives)


PARTS = {"evaluate": evaluation, "ofrep": ofrep, "register": register, "fleet": fleet}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="evaluate, ofrep, register or fleet; all of them without")
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    for name in given.parts or PARTS:
        PARTS[name](given.seconds)


if __name__ == "__main__":
    main()
