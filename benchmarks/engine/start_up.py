# SPDX-License-Identifier: Apache-2.0
"""What kvflags adds to the start of vLLM: to `vllm serve --help`, and to a start up to the finished configuration.

    python benchmarks/engine/start_up.py [--repeats 5] [--json]

Real vLLM, each run a process of its own, all kinds in turn so that they see the same machine. "without" is the same
environment with `VLLM_PLUGINS=` (no plugin is loaded). The process's wall time is given as a ratio of medians; what is
added to it, and to the one call that kvflags can lengthen (loading the plugins; `create_engine_config`), as the median
of paired differences with the middle half of them. The call is free of the noise of importing vLLM for ten seconds, its
CPU time also of other processes'. The silent collector accepts connections and never answers.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

AIM_HELP_MS, AIM_SILENT_MS = 100, 2_300

FIGURES = ("wall", "call", "cpu")

CHILD = """
import json, sys, time
from types import SimpleNamespace
report, what, model = sys.argv[1:4]
spent = {}

def timed(module, name, key):
    inner = getattr(module, name)
    def call(*args, **kwargs):
        began, cpu = time.perf_counter(), time.process_time()
        try:
            return inner(*args, **kwargs)
        finally:
            spent[key] = spent.get(key, 0) + time.perf_counter() - began
            spent[key + "_cpu"] = spent.get(key + "_cpu", 0) + time.process_time() - cpu
    setattr(module, name, call)

import vllm.plugins
timed(vllm.plugins, "load_general_plugins", "plugins")
try:
    if what == "help":
        sys.argv = ["vllm", "serve", "--help"]
        import vllm.entrypoints.cli.main as cli
        # It asks for the version of a distribution "vllm", which the CPU build is not called.
        cli.importlib = SimpleNamespace(metadata=SimpleNamespace(version=lambda name: "0"))
        cli.main()
    else:
        from vllm.config import KVTransferConfig
        from vllm.engine.arg_utils import EngineArgs
        transfer = KVTransferConfig(kv_connector="NixlConnector", kv_role="kv_producer", kv_buffer_device="cpu")
        args = EngineArgs(model=model, skip_tokenizer_init=True, enforce_eager=True, max_model_len=2048,
                          dtype="bfloat16", kv_transfer_config=transfer)
        timed(args, "create_engine_config", "config")
        config = args.create_engine_config()
        carried = (config.kv_transfer_config.kv_connector_extra_config.get("kvflags") or {}).get("carried", {})
        spent["source"] = carried.get("source")
finally:
    with open(report, "w") as file:
        json.dump(spent, file)
"""

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


def run(folder, what, environ):
    """One process: its wall time and what it reports of itself, in seconds."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    usual = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KVFLAGS_")}
    command = [sys.executable, "-c", CHILD, str(report), what, str(folder / "model")]
    began = time.perf_counter()
    done = subprocess.run(command, env=kept | usual | environ, check=False, capture_output=True, text=True)
    wall = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{what} failed:\n{done.stderr[-3000:]}")
    return {"wall": wall, **json.loads(report.read_text())}


def kinds(folder, answering, silent):
    """Every kind of run: what it does, and the environment that makes the difference."""

    def to(url):
        return {
            "KVFLAGS_COLLECTOR_URL": url,
            "KVFLAGS_DEPLOYMENT": "bench/start/up",
            "KVFLAGS_STATE_DIR": str(folder / "state"),
        }

    return {
        "help, without": ("help", {"VLLM_PLUGINS": ""}),
        "help, with": ("help", to(answering)),
        "start, without": ("start", {"VLLM_PLUGINS": ""}),
        "start, collector answers": ("start", to(answering)),
        "start, collector silent": ("start", to(silent)),
    }


def compare(name, bare, ours, key):
    """One row. Runs of one round are paired: they saw the same moment of the machine."""
    bare_s, ours_s = (statistics.median(run["wall"] for run in runs) for runs in (bare, ours))
    row = {"what": name, "bare_wall_s": bare_s, "ratio": ours_s / bare_s}
    for figure, source in zip(FIGURES, ("wall", key, f"{key}_cpu"), strict=True):
        added = [1000 * (mine[source] - base[source]) for mine, base in zip(ours, bare, strict=True)]
        low, median, high = statistics.quantiles(added, n=4)
        row |= {f"{figure}_added_ms": median, f"{figure}_middle_half_ms": [low, high]}
    return row


def measure(repeats):
    with (
        tempfile.TemporaryDirectory() as name,
        socket.create_server(("127.0.0.1", 0), backlog=1000) as silent,
        socket.create_server(("127.0.0.1", 0)) as free,
    ):
        folder = Path(name)
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(json.dumps(MODEL))
        port = free.getsockname()[1]
        free.close()
        command = [sys.executable, "-m", "kvflags_cli", "serve", "--port", str(port), "--db", f"sqlite:///{folder}/db"]
        collector = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert "ready" in collector.stdout.readline()
            every = kinds(folder, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{silent.getsockname()[1]}")
            # A first round that does not count: it reads vLLM from the disk and compiles it to byte code.
            run(folder, *every["start, without"])
            rounds = [{kind: run(folder, *every[kind]) for kind in every} for _ in range(repeats)]
        finally:
            collector.terminate()
            collector.wait()
            collector.stdout.close()
    return {kind: [each[kind] for each in rounds] for kind in every}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runs = measure(options.repeats)
    # Otherwise it was not the start that was meant: on a busy machine even a near collector can take more than 2 s.
    for kind, source in (("start, collector answers", "registered"), ("start, collector silent", "fallback")):
        met_with = [each["source"] for each in runs[kind]]
        if set(met_with) != {source}:
            print(f"{kind}: {', '.join(map(str, met_with))}, not {source} each time", file=sys.stderr)
    rows = [
        compare("vllm serve --help", runs["help, without"], runs["help, with"], "plugins"),
        compare("start, collector answers", runs["start, without"], runs["start, collector answers"], "config"),
        compare("start, collector silent", runs["start, without"], runs["start, collector silent"], "config"),
    ]
    met = rows[0]["call_added_ms"] < AIM_HELP_MS and rows[2]["call_added_ms"] < AIM_SILENT_MS
    if options.json:
        print(json.dumps({"rows": rows, "repeats": options.repeats, "aims_met": met}, indent=1))
        return
    print(f"{'added, ms (middle half)':28}{'without':>9}{'ratio':>7}{'wall':>26}{'in the call':>26}{'of that CPU':>26}")
    for row in rows:
        cells = ("{:.0f} ({:.0f} to {:.0f})".format(row[f"{f}_added_ms"], *row[f"{f}_middle_half_ms"]) for f in FIGURES)
        print(f"{row['what']:28}{row['bare_wall_s']:7.2f} s{row['ratio']:7.3f}" + "".join(f"{c:>26}" for c in cells))
    print(f"aims (help {AIM_HELP_MS} ms, silent {AIM_SILENT_MS} ms): {'met' if met else 'MISSED'}")


if __name__ == "__main__":
    main()
