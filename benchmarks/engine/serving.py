# SPDX-License-Identifier: Apache-2.0
"""What serving costs with kvflags against without: step times, throughput, memory. Real engines, one run, in turns.

Three pairs of engines: two plain (`KVFLAGS_DISABLED=1`), one with kvflags, its exporter and heartbeats running against
a real collector, and in turns of its own against one that is silent, answers 500, or is not there. The second plain
pair shows what two equal pairs differ by here: a ratio inside its interval is noise. All are given the same requests in
alternating rounds, one request at a time, so that the time between two tokens is one step of the decode engine. NIXL's
progress thread polls without a pause, and engines that share two cores measure each other: pairs that are not measured
are stopped (SIGSTOP) meanwhile, and prefill engines run at the lowest priority. Intervals are a bootstrap over rounds.

    python benchmarks/engine/serving.py [ROUNDS]        # 5 rounds of 6 turns of 4 requests: 15 minutes on two cores
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

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))

from link import Link, State

from kvflags_cli.demo.model import make_model
from kvflags_cli.demo.pair import Pair, free_port
from kvflags_cli.demo.service import Service
from kvflags_cli.demo.traffic import prompts

FLAG = "bench"
REQUESTS, TOKENS, RESAMPLES = 4, 64, 2_000
SHOWN = {
    "again": "without, a second pair",
    "cut": "kvflags, cut off",
    "silent": "kvflags, silent",
    "broken": "kvflags, 500",
}


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        service = Service(place / "kvflags.db", place / "collector.log", port=free_port(), heartbeat="30s").start()
        with service.client() as client:
            body = {"key": FLAG, "feature": "cross_layer_blocks", "author": "bench", "reason": "decide and observe"}
            client.post("flags", body=body)
        link = Link(service.url)
        pairs = _pairs(place, link)
        started = []
        try:
            for pair in pairs.values():
                started.append(pair.start())
                pair.wait_ready()
                os.setpriority(os.PRIO_PGRP, pair.prefill.pid, 19)
                _signal(pair, signal.SIGSTOP)
            measured = _measure(pairs, link, rounds)
            memory = {name: _memory(pair) for name, pair in pairs.items()}
            link.state = State.UP
            _signal(pairs["kvflags"], signal.SIGCONT)
            _report(measured, memory)
            _check_observed(service, (rounds + 1) * REQUESTS * len(State))
        finally:
            for pair in started:
                _signal(pair, signal.SIGCONT)
                pair.stop()
            link.close()
            service.stop()


def _pairs(place, link):
    model = make_model(place)
    plain, ours = {"KVFLAGS_DISABLED": "1"}, {"KVFLAGS_COLLECTOR_URL": link.url, "KVFLAGS_ISOLATION": "recreate"}
    environs = {"plain": plain, "again": plain, "kvflags": ours}
    return {name: Pair(f"bench/engine/{name}", "r1", model, place, environ=one) for name, one in environs.items()}


def _measure(pairs, link, rounds):
    """Per kind of turn and round: (requests a second, gaps between tokens in seconds). The first round is warm-up."""
    turns = [("plain", "plain", State.UP), ("again", "again", State.UP)]
    turns += [("kvflags" if state is State.UP else state.name.lower(), "kvflags", state) for state in State]
    measured = {name: [] for name, _, _ in turns}
    for number in range(rounds + 1):
        # Each kind is the first of its round equally often.
        first = number % len(turns)
        for name, pair, link.state in turns[first:] + turns[:first]:
            _signal(pairs[pair], signal.SIGCONT)
            turn = _turn(pairs[pair], prompts(f"{name}-{number}", REQUESTS, seed=number, longest=200))
            # Time for what is queued to be sent: it belongs to the pair's own turn.
            time.sleep(1)
            _signal(pairs[pair], signal.SIGSTOP)
            if number:
                measured[name].append(turn)
        print(f"round {number} of {rounds}", file=sys.stderr)
    return measured


def _turn(pair, batch):
    """(Requests a second, seconds of each step)."""
    begin = time.perf_counter()
    results = [pair.request(request_id, tokens, TOKENS) for request_id, tokens in batch.items()]
    rate = len(batch) / (time.perf_counter() - begin)
    return rate, [gap for result in results for gap in result.gaps]


def _signal(pair, number):
    """To every process of both engines; each engine leads a process group of its own."""
    for engine in (pair.prefill, pair.decode):
        os.killpg(engine.pid, number)


def _check_observed(service, transfers):
    """The comparison means nothing unless kvflags was at work: every transfer of its pair gets to the collector."""
    end = time.monotonic() + 180
    with service.client() as client:
        while True:
            rows = client.get("flags", FLAG, "report")["deployments"]
            # A row for each epoch: an engine that was stopped for longer than its lease has registered again.
            if sum(row["transfers"] or 0 for row in rows) == transfers:
                return
            assert time.monotonic() < end, rows
            time.sleep(1)


def _memory(pair):
    """Resident MiB of the whole process tree of both engines."""
    trees = [psutil.Process(engine.pid) for engine in (pair.prefill, pair.decode)]
    processes = [process for tree in trees for process in (tree, *tree.children(recursive=True))]
    return sum(process.memory_full_info().uss for process in processes) / 2**20, len(processes)


def _report(measured, memory):
    figures = {
        "requests a second": lambda rounds: statistics.fmean(rate for rate, _ in rounds),
        "a step, median (ms)": lambda rounds: 1000 * statistics.median(_gaps(rounds)),
        "a step, p99 (ms)": lambda rounds: 1000 * statistics.quantiles(_gaps(rounds), n=100)[98],
    }
    for name, figure in figures.items():
        print(f"{name}: {figure(measured['plain']):.2f} without kvflags, n = {len(_gaps(measured['plain']))}")
        for other in list(measured)[1:]:
            ratio = _ratio(figure, measured["plain"], measured[other])
            print(f"    {SHOWN.get(other, other):24} {figure(measured[other]):9.2f}   {ratio}")
    (plain, count), (ours, _) = memory["plain"], memory["kvflags"]
    print(f"own memory of all processes (MiB): {plain:.0f} without, {ours:.0f} with kvflags   {ours / plain:.3f}")
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
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
