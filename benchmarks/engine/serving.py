# SPDX-License-Identifier: Apache-2.0
"""What serving costs with kvflags against without: step times, throughput, memory. Real engines, one run, in turns.

Two pairs of engines stand side by side, one plain (`KVFLAGS_DISABLED=1`), one with kvflags, its exporter and heartbeats
running against a real collector. They are given the same requests in alternating rounds, so that whatever else the
machine does falls on both alike. Ratios are kvflags / plain; the interval is a bootstrap over rounds.

    python benchmarks/engine/serving.py [ROUNDS]        # 12 rounds of 16 requests each: about 4 minutes on two cores
"""

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

from kvflags_cli.demo.model import make_model
from kvflags_cli.demo.pair import Pair, free_port
from kvflags_cli.demo.service import Service
from kvflags_cli.demo.traffic import prompts

REQUESTS, TOKENS, RESAMPLES = 16, 32, 2_000


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        service = Service(place / "kvflags.db", place / "collector.log", port=free_port(), heartbeat="30s").start()
        model = make_model(place)
        pairs = {
            "plain": Pair("bench/engine/plain", "r1", model, place, environ={"KVFLAGS_DISABLED": "1"}),
            "kvflags": Pair("bench/engine/kvflags", "r1", model, place, environ=_taking_part(service)),
        }
        try:
            for pair in pairs.values():
                pair.start().wait_ready()
            _report(_measure(pairs, rounds), {name: _memory(pair) for name, pair in pairs.items()})
        finally:
            for pair in pairs.values():
                pair.stop()
            service.stop()


def _taking_part(service):
    return {"KVFLAGS_COLLECTOR_URL": service.url, "KVFLAGS_ISOLATION": "recreate"}


def _measure(pairs, rounds):
    """Per pair and round: (requests a second, gaps between tokens in seconds). The first round is warm-up."""
    measured = {name: [] for name in pairs}
    for number in range(rounds + 1):
        order = list(pairs) if number % 2 else list(reversed(pairs))
        for name in order:
            batch = prompts(f"{name}-{number}", REQUESTS, seed=number, longest=600)
            begin = time.perf_counter()
            results = pairs[name].send(batch, TOKENS)
            rate = REQUESTS / (time.perf_counter() - begin)
            if number:
                measured[name].append((rate, [gap for result in results.values() for gap in result.gaps]))
    return measured


def _memory(pair):
    """Resident MiB of the whole process tree of both engines."""
    trees = [psutil.Process(engine.pid) for engine in (pair.prefill, pair.decode)]
    processes = [process for tree in trees for process in (tree, *tree.children(recursive=True))]
    return sum(process.memory_full_info().uss for process in processes) / 2**20, len(processes)


def _report(measured, memory):
    figures = {
        "requests a second": lambda rounds: statistics.fmean(rate for rate, _ in rounds),
        "time between tokens, median (ms)": lambda rounds: 1000 * statistics.median(_gaps(rounds)),
        "time between tokens, p99 (ms)": lambda rounds: 1000 * statistics.quantiles(_gaps(rounds), n=100)[98],
    }
    print(f"{'':34} {'plain':>9} {'kvflags':>9} {'ratio':>7}  95 % interval")
    for name, figure in figures.items():
        plain, ours = figure(measured["plain"]), figure(measured["kvflags"])
        low, high = _interval(figure, measured)
        print(f"{name:34} {plain:9.2f} {ours:9.2f} {ours / plain:7.3f}  [{low:.3f}, {high:.3f}]")
    (plain, count), (ours, _) = memory["plain"], memory["kvflags"]
    print(f"{'own memory of all processes (MiB)':34} {plain:9.0f} {ours:9.0f} {ours / plain:7.3f}")
    print(f"memory added to each of {count} processes: {(ours - plain) / count:.1f} MiB")


def _gaps(rounds):
    return [gap for _, gaps in rounds for gap in gaps]


def _interval(figure, measured):
    """Rounds are resampled in pairs: a round of one and the round of the other saw the same machine."""
    dice = random.Random(0)
    rounds = list(zip(measured["plain"], measured["kvflags"], strict=True))
    ratios = []
    for _ in range(RESAMPLES):
        drawn = dice.choices(rounds, k=len(rounds))
        plain, ours = zip(*drawn, strict=True)
        ratios.append(figure(ours) / figure(plain))
    cut = statistics.quantiles(ratios, n=40)
    return cut[0], cut[-1]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
