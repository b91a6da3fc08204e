# SPDX-License-Identifier: Apache-2.0
"""What kvflags costs on the engine's threads: per idle step and per transfer, against the bare agent.

    python benchmarks/engine/hot_path.py [--json]

No engine and no vLLM: an agent whose calls return at once stands for NIXL, and the loop makes the calls that the pull
worker of vLLM 0.32 makes. Bare and observed runs alternate in one process, so that both see the same machine; the
figure is the median of the differences, with the middle half of them. The last lines show what the export thread does
to a loop that needs the GIL all the time, at 100 and at 2,000 transfers a second, with a sink in another process.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import statistics
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

from kvflags.connector.agent import AgentProxy, marked
from kvflags.connector.observe import Observer
from kvflags.flags import Decision, Facts
from kvflags.telemetry.export import Exporter
from kvflags.telemetry.labels import Engine, Layout, labels
from kvflags.telemetry.records import Records

ROUNDS, CALLS = 41, 5_000
AIM_STEP_US, AIM_TRANSFER_US = 1.0, 20.0
META = SimpleNamespace(
    local_block_ids=([1, 2, 3, 4, 5],),
    local_physical_block_ids=([1, 2, 3, 4, 5],),
    remote=SimpleNamespace(engine_id="engine-p", request_id="req-p"),
)
LABELS = labels(
    Engine(id="e", deployment="c/ns/d", generation="r1", role="decode", mode="pull", rank=0, world_size=1),
    Decision(feature="cross_layer_blocks", flag="clb", variant="on", arm="treatment", reason="arm"),
    Facts(vllm="0.32.0", backend="FLASH_ATTN"),
    Layout("BHLNC", "BHLNC", 1, 8, effective=True),
)


class InstantAgent:
    """NIXL without the transfer: every call returns at once."""

    telemetry = SimpleNamespace(totalBytes=2_621_440, descCount=5, postDuration=750.0)
    state = "DONE"

    def make_prepped_xfer(self, *_, **__):
        return object()

    def transfer(self, _handle):
        return "PROC"

    def check_xfer_state(self, _handle):
        return self.state

    def get_xfer_telemetry(self, _handle):
        return self.telemetry

    def release_xfer_handle(self, _handle):
        return None

    def get_new_notifs(self):
        return {}

    def send_notif(self, *_, **__):
        return None


class Worker:
    """The calls of one request and of one step, as the pull worker makes them."""

    def __init__(self, agent):
        self.nixl_wrapper = agent
        self._read_blocks_for_req = self.read

    def read(self, _req_id, _meta):
        self.handle = self.nixl_wrapper.make_prepped_xfer("READ", 1, [0], 2, [0], notif_msg=b"req-p:1")
        self.nixl_wrapper.transfer(self.handle)

    def transfer(self, n):
        self._read_blocks_for_req(f"request-{n}", META)
        if self.nixl_wrapper.check_xfer_state(self.handle) == "DONE":
            self.nixl_wrapper.get_xfer_telemetry(self.handle)
            self.nixl_wrapper.release_xfer_handle(self.handle)

    def idle_step(self, _n):
        for _ in self.nixl_wrapper.get_new_notifs().values():
            pass

    def busy_step(self, n):
        self.idle_step(n)
        self.nixl_wrapper.check_xfer_state(self.handle)


def observed(agent, records):
    observer = Observer(records)
    worker = Worker(AgentProxy(agent, observer))
    worker._read_blocks_for_req = marked(worker.read, observer)
    return worker


def timed(call):
    # CPU time of this thread: whatever else the machine does is not what these calls cost.
    start = time.thread_time_ns()
    for n in range(CALLS):
        call(n)
    return (time.thread_time_ns() - start) / CALLS / 1_000


def compare(name, records, *, state="DONE"):
    """(bare us, [added us, ...]) of one kind of call."""
    agent = InstantAgent()
    bare, ours = Worker(agent), observed(agent, records)
    bare.read("r", META)
    ours._read_blocks_for_req("r", META)
    agent.state = state
    bares, added = [], []
    for _ in range(ROUNDS):
        bares.append(timed(getattr(bare, name)))
        added.append(timed(getattr(ours, name)) - bares[-1])
        records.take(2 * CALLS)
    return statistics.median(bares), added


def row(name, result):
    bare, added = result
    low, middle, high = statistics.quantiles(added, n=4)
    return {"what": name, "bare_us": bare, "added_us": middle, "middle_half_us": [low, high]}


class Sink(BaseHTTPRequestHandler):
    """Takes everything. In a process of its own, so that it does not share the GIL that is measured."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def sink(pipe):
    server = HTTPServer(("127.0.0.1", 0), Sink)
    pipe.send(server.server_port)
    server.serve_forever()


def stalls(port, rate, *, exporting):
    """Turns of a GIL-bound loop in ms, at the 50th and 99th percentile, and the spans that were sent meanwhile."""
    records, turns = Records(), []
    running = Exporter(records, lambda: LABELS, f"http://127.0.0.1:{port}", environ={})
    worker = observed(InstantAgent(), records)
    worker.transfer(0)
    if exporting:
        running.start()
        time.sleep(1.5)  # the SDK is imported once in a process: not what this measures
    started, made = time.monotonic(), 0
    while (now := time.monotonic()) < started + 5:
        start = time.perf_counter_ns()
        for n in range(4_000):
            worker.idle_step(n)
        while made < (now - started) * rate:
            worker.transfer(made := made + 1)
        turns.append((time.perf_counter_ns() - start) / 1e6)
    if exporting:
        running.shutdown()
    cuts = statistics.quantiles(turns, n=100)
    return {"p50_ms": cuts[49], "p99_ms": cuts[98], "sent": made + 1 - len(records) if exporting else 0}


def main():
    gc.disable()  # as vLLM freezes its heap
    rows = [
        row("idle step", compare("idle_step", Records())),
        row("step with a transfer under way", compare("busy_step", Records(), state="PROC")),
        row("transfer", compare("transfer", Records())),
    ]
    gc.enable()
    met = rows[0]["added_us"] < AIM_STEP_US and rows[2]["added_us"] < AIM_TRANSFER_US
    ours, theirs = multiprocessing.Pipe()
    other = multiprocessing.Process(target=sink, args=(theirs,), daemon=True)
    other.start()
    port = ours.recv()
    loop = {
        f"{rate}/s, {'exporting' if exporting else 'alone'}": stalls(port, rate, exporting=exporting)
        for rate in (100, 2_000)
        for exporting in (False, True)
    }
    other.terminate()
    report = {"rows": rows, "loop": loop, "aims_met": met}
    if "--json" in sys.argv:
        print(json.dumps(report, indent=1))
        return
    print(f"{'':34}{'bare':>10}{'added':>10}   middle half")
    for each in rows:
        low, high = each["middle_half_us"]
        print(f"{each['what']:34}{each['bare_us']:7.2f} us{each['added_us']:7.2f} us   {low:.2f} to {high:.2f} us")
    for name, turn in loop.items():
        print(
            f"GIL-bound loop, {name:18} p50 {turn['p50_ms']:.2f} ms, p99 {turn['p99_ms']:.2f} ms, {turn['sent']} sent"
        )
    print(f"aims (step {AIM_STEP_US:g} us, transfer {AIM_TRANSFER_US:g} us): {'met' if met else 'MISSED'}")


if __name__ == "__main__":
    main()
