# SPDX-License-Identifier: Apache-2.0
"""What pages cost: a real `kvflags serve` on a filled database, read by many at once, and listened to while they read.

    python benchmarks/web/readers.py fleet.db --readers 50 --requests 300

`fleet.db` is the SQLite database of a collector with the flag cross-layer-blocks. The clients are threads of another
process on the same cores. Times are from the request to the answer's last byte, in milliseconds; CPU is the server's.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles

import httpx
import psutil

from kvflags_cli.demo.pair import free_port
from kvflags_cli.demo.service import Service

_KEY = "cross-layer-blocks"


def _pages(url: str) -> dict[str, str]:
    listed = httpx.get(f"{url}/rollouts/{_KEY}.json", timeout=120, trust_env=False).json()["deployments"]["items"]
    return {
        "/": "/",
        "/rollouts/KEY": f"/rollouts/{_KEY}",
        "/rollouts/KEY.json": f"/rollouts/{_KEY}.json",
        "/deployments/NAME": f"/deployments/{listed[0]['deployment']}",
    }


def _timed(client: httpx.Client, path: str) -> tuple[float, int]:
    began = time.perf_counter()
    answer = client.get(path)
    assert answer.is_success, answer.text
    return (time.perf_counter() - began) * 1000, len(answer.content)


def _read(url: str, path: str, readers: int, requests: int, collector: psutil.Process) -> str:
    with ExitStack() as opened, ThreadPoolExecutor(readers) as pool:
        clients = [
            opened.enter_context(httpx.Client(base_url=url, timeout=120, trust_env=False)) for _ in range(readers)
        ]
        before, began = _cpu_s(collector), time.perf_counter()
        found = list(pool.map(lambda at: _timed(clients[at % readers], path), range(requests)))
        took, cpu = time.perf_counter() - began, _cpu_s(collector) - before
    ways = quantiles([one for one, _ in found], n=100, method="inclusive")
    size = max(size for _, size in found) / 1000
    rates = f"{requests / took:,.0f} | {1000 * cpu / requests:,.0f}"
    return f"{readers} | {ways[49]:,.0f} | {ways[94]:,.0f} | {rates} | {size:,.0f}"


def _listened(url: str, readers: int, collector: psutil.Process, seconds: float = 20) -> float:
    """The share of a core that the collector takes while so many pages are open and nobody changes anything."""
    ready, done = threading.Barrier(readers + 1), threading.Event()

    def listen() -> None:
        with httpx.stream("GET", f"{url}/rollouts/{_KEY}/events", timeout=120, trust_env=False) as answer:
            lines = answer.iter_lines()
            next(lines)
            ready.wait()
            done.wait()

    threads = [threading.Thread(target=listen) for _ in range(readers)]
    for thread in threads:
        thread.start()
    ready.wait(120)
    before = _cpu_s(collector)
    time.sleep(seconds)
    share = (_cpu_s(collector) - before) / seconds
    done.set()
    for thread in threads:
        thread.join()
    return share


def _cpu_s(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


def _process(port: int) -> psutil.Process:
    mine = psutil.Process().children(recursive=True)
    return next(one for one in mine if str(port) in one.cmdline())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", type=Path)
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--requests", type=int, default=300)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        service = Service(asked.database.resolve(), Path(folder) / "log", port=port, heartbeat="30s").start(timeout=120)
        try:
            began = time.perf_counter()
            pages = _pages(service.url)
            print(f"first page after a start: {time.perf_counter() - began:.1f} s")
            collector = _process(port)
            print("page | readers | p50 ms | p95 ms | a second | CPU ms each | kB")
            for name, path in pages.items():
                for readers in (1, asked.readers):
                    requests = asked.requests if readers > 1 else max(asked.requests // 10, 10)
                    print(name, "|", _read(service.url, path, readers, requests, collector))
            for readers in (1, asked.readers):
                print(f"listening, {readers}: {_listened(service.url, readers, collector):.1%} of a core")
        finally:
            service.stop()


if __name__ == "__main__":
    main()
