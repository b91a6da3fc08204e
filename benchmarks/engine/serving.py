# SPDX-License-Identifier: Apache-2.0
"""What serving costs with kvflags against without: step times, throughput, memory. Real engines, one run, in turns.

Three pairs of engines: two plain (`KVFLAGS_DISABLED=1`), one with kvflags, its exporter and heartbeats running against
a real collector. The second plain pair shows what two equal pairs differ by here: a ratio inside its interval is noise.
All are given the same requests in alternating rounds, one request at a time, so that the time between two tokens is one
step of the decode engine. The pairs that are not measured are stopped (SIGSTOP) meanwhile: NIXL's progress thread polls
without a pause, and pairs that share two cores measure each other. Intervals are a bootstrap over rounds.

    python benchmarks/engine/serving.py [ROUNDS]        # 8 rounds of 6 requests each: about 8 minutes on two cores
"""

import os
import random
import signal
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

FLAG = "bench"
REQUESTS, TOKENS, RESAMPLES = 6, 32, 2_000


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        service = Service(place / "kvflags.db", place / "collector.log", port=free_port(), heartbeat="30s").start()
        with service.client() as client:
            body = {"key": FLAG, "feature": "cross_layer_blocks", "author": "bench", "reason": "decide and observe"}
            client.post("flags", body=body)
        model = make_model(place)
        pairs = {
            "plain": Pair("bench/engine/plain", "r1", model, place, environ={"KVFLAGS_DISABLED": "1"}),
            "again": Pair("bench/engine/again", "r1", model, place, environ={"KVFLAGS_DISABLED": "1"}),
            "kvflags": Pair("bench/engine/kvflags", "r1", model, place, environ=_taking_part(service)),
        }
        started = []
        try:
            for pair in pairs.values():
                started.append(pair.start())
                pair.wait_ready()
                _signal(pair, signal.SIGSTOP)
            measured = _measure(pairs, rounds)
            memory = {name: _memory(pair) for name, pair in pairs.items()}
            _check_observed(service, (rounds + 1) * REQUESTS)
            _report(measured, memory)
        finally:
            for pair in started:
                _signal(pair, signal.SIGCONT)
                pair.stop()
            service.stop()


def _taking_part(service):
    return {"KVFLAGS_COLLECTOR_URL": service.url, "KVFLAGS_ISOLATION": "recreate"}


def _measure(pairs, rounds):
    """Per pair and round: (requests a second, gaps between tokens in seconds). The first round is warm-up."""
    measured = {name: [] for name in pairs}
    for number in range(rounds + 1):
        # Each pair is the first of its round equally often.
        order = [*pairs][number % len(pairs) :] + [*pairs][: number % len(pairs)]
        for name in order:
            _signal(pairs[name], signal.SIGCONT)
            turn = _turn(pairs[name], prompts(f"{name}-{number}", REQUESTS, seed=number, longest=200))
            # Time for what is queued to be sent: it belongs to the pair's own turn.
            time.sleep(1)
            _signal(pairs[name], signal.SIGSTOP)
            if number:
                measured[name].append(turn)
        print(f"round {number} of {rounds}", file=sys.stderr)
    return measured


def _turn(pair, batch):
    begin = time.perf_counter()
    results = [pair.request(request_id, tokens, TOKENS) for request_id, tokens in batch.items()]
    rate = len(batch) / (time.perf_counter() - begin)
    return rate, [gap for result in results for gap in result.gaps]


def _signal(pair, number):
    """To every process of both engines; each engine leads a process group of its own."""
    for engine in (pair.prefill, pair.decode):
        os.killpg(engine.pid, number)


def _check_observed(service, transfers):
    """The comparison means nothing unless kvflags was at work: every transfer of its pair is at the collector."""
    with service.client() as client:
        rows = client.get("flags", FLAG, "report")["deployments"]
    # A row for each epoch: an engine that was stopped for longer than its lease has registered again.
    seen = sum(row["transfers"] for row in rows)
    assert seen == transfers, rows


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
    print(f"{'':34} {'plain':>9} {'kvflags':>9}   kvflags / plain       plain / plain (noise)")
    for name, figure in figures.items():
        plain, ours = figure(measured["plain"]), figure(measured["kvflags"])
        ratios = "  ".join(_ratio(figure, measured["plain"], measured[other]) for other in ("kvflags", "again"))
        print(f"{name:34} {plain:9.2f} {ours:9.2f}   {ratios}")
    (plain, count), (ours, _) = memory["plain"], memory["kvflags"]
    print(f"{'own memory of all processes (MiB)':34} {plain:9.0f} {ours:9.0f}   {ours / plain:.3f}")
    print(f"memory added to each of {count} processes: {(ours - plain) / count:.1f} MiB")


def _gaps(rounds):
    return [gap for _, gaps in rounds for gap in gaps]


def _ratio(figure, base, other):
    """`other` / `base`, with a 95 % interval: rounds of one number, which saw the same machine, are drawn together."""
    dice = random.Random(0)
    rounds = list(zip(base, other, strict=True))
    ratios = []
    for _ in range(RESAMPLES):
        below, above = zip(*dice.choices(rounds, k=len(rounds)), strict=True)
        ratios.append(figure(above) / figure(below))
    cut = statistics.quantiles(ratios, n=40)
    return f"{figure(other) / figure(base):.3f} [{cut[0]:.3f}, {cut[-1]:.3f}]"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
