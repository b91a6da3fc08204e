# SPDX-License-Identifier: Apache-2.0
"""What outcomes cost vLLM's front end: one iteration in our stat logger, beside the same in vLLM's own two.

    python benchmarks/engine/outcomes.py [--json]

vLLM's own classes, filled with the statistics of an iteration of 1, 64 and 256 running requests: a token for each, one
first token, one request that ends. No engine. CPU time of the thread, the median of rounds that take turns.
"""

from __future__ import annotations

import json
import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

from vllm.engine.arg_utils import EngineArgs
from vllm.v1.engine import FinishReason
from vllm.v1.metrics.loggers import AggregateStatLoggerBase, LoggingStatLogger, PrometheusStatLogger
from vllm.v1.metrics.stats import FinishedRequestStats, IterationStats, SchedulerStats

from kvflags.connector.outcomes import stat_logger
from kvflags.decision import carry
from kvflags.decision.carry import Carried
from kvflags_cli.demo.model import make_model

ROUNDS, CALLS = 31, 200
REQUESTS = (1, 64, 256)
# The thread that answers clients pays both: ours must stay well below what it pays already.
AIM_SHARE = 0.5


def iteration(requests):
    stats = IterationStats()
    stats.num_generation_tokens = requests
    stats.inter_token_latencies_iter = [0.02 + 0.0001 * n for n in range(requests)]
    stats.time_to_first_tokens_iter = [0.5]
    stats.prompt_token_stats.total = 500
    stats.finished_requests = [FinishedRequestStats(FinishReason.LENGTH, e2e_latency=1.0, num_prompt_tokens=500)]
    return stats


def ours():
    config = SimpleNamespace(
        kv_transfer_config=SimpleNamespace(engine_id="e", kv_connector_extra_config={}),
        parallel_config=SimpleNamespace(data_parallel_size=1),
        cache_config=SimpleNamespace(num_gpu_blocks=1024),
    )
    carry.put(config, Carried(source="registered", reason="arm", registration_id="i", url="http://127.0.0.1:1"))
    return stat_logger(AggregateStatLoggerBase)(config, [0])


def theirs(folder):
    model = make_model(Path(folder))
    config = EngineArgs(model=str(model), skip_tokenizer_init=True, enforce_eager=True).create_engine_config()
    return LoggingStatLogger(config, 0), PrometheusStatLogger(config, [0])


def timed(logger, stats):
    scheduler = SchedulerStats(kv_cache_usage=0.4)
    start = time.thread_time_ns()
    for _ in range(CALLS):
        logger.record(scheduler, stats, engine_idx=0)
    return (time.thread_time_ns() - start) / CALLS / 1_000


def main():
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        loggers = {"kvflags": ours(), **dict(zip(("log", "prometheus"), theirs(folder), strict=True))}
    rows = []
    for requests in REQUESTS:
        stats = iteration(requests)
        rounds = [{name: timed(logger, stats) for name, logger in loggers.items()} for _ in range(ROUNDS)]
        rows.append({"requests": requests} | {f"{n}_us": statistics.median(r[n] for r in rounds) for n in loggers})
    report = {"rows": rows, "aim_met": all(r["kvflags_us"] < AIM_SHARE * r["prometheus_us"] for r in rows)}
    if "--json" in sys.argv:
        print(json.dumps(report, indent=1))
        return
    for row in rows:
        print(
            f"iteration of {row['requests']:3} requests: kvflags {row['kvflags_us']:7.1f} us, vLLM's log"
            f" {row['log_us']:6.1f} us, vLLM's Prometheus {row['prometheus_us']:7.1f} us"
        )
    print(f"aim (less than half of vLLM's Prometheus logger): {'met' if report['aim_met'] else 'MISSED'}")


if __name__ == "__main__":
    main()
