# SPDX-License-Identifier: Apache-2.0
"""Broken requests of every kind, seeded, against a real process: no 5xx, no growth. `make soak` sends a million."""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import httpx
from google.protobuf.json_format import MessageToDict

from kvflags_collector.ingest.signals import SIGNALS

REQUESTS = int(os.environ.get("KVFLAGS_SOAK_REQUESTS", "2000"))
SEED = int(os.environ.get("KVFLAGS_SOAK_SEED", "1"))
THREADS = 4

_TYPES = ["application/x-protobuf"] * 6 + ["application/json"] * 4 + ["text/plain", "", "application/json; charset=x"]
_PATHS = [signal.path for signal in SIGNALS] * 8 + ["/v1/profiles", "/v1/", "/v1/traces/", "/v1/%ff"]
_TOKENS = [
    b"\xff",
    b"\0",
    b"{",
    b"[",
    b'"',
    b":",
    b"\\ud800",
    b"1e999",
    b"null",
    b"\x0a\x80\x80\x80\x80\x08",
    b"\xc0\xaf",
]


class Fuzzer:
    """Requests out of valid ones, by one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        now = time.time_ns()
        trace, metric, log = (signal.request() for signal in SIGNALS)
        span = trace.resource_spans.add().scope_spans.add().spans.add(trace_id=b"t" * 16, span_id=b"s" * 8)
        span.start_time_unix_nano, span.end_time_unix_nano, span.name = now, now + 9, "kv.transfer"
        span.attributes.add(key="kvflags.transfer.bytes").value.int_value = 7
        span.attributes.add(key="k").value.array_value.values.add().string_value = "v"
        added = metric.resource_metrics.add().scope_metrics.add().metrics.add()
        added.name = "kvflags.outcome.time_to_first_token"
        added.exponential_histogram.aggregation_temporality = 1
        point = added.exponential_histogram.data_points.add(time_unix_nano=now, count=3, sum=1.0, scale=5)
        point.positive.bucket_counts.extend([1, 2])
        record = log.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=now)
        record.event_name = "kvflags.drops"
        self.protobuf = [message.SerializeToString() for message in (trace, metric, log)]
        self.json = [json.dumps(MessageToDict(message)).encode() for message in (trace, metric, log)]

    def body(self, kind: str) -> bytes:
        body = self.random.choice(self.json if "json" in kind else self.protobuf)
        for _ in range(self.random.choice([0, 1, 1, 2, 8])):
            body = self._mutated(body)
        return body

    def _mutated(self, body: bytes) -> bytes:
        at = self.random.randrange(len(body) + 1)
        match self.random.randrange(7):
            case 0:
                return body[:at]
            case 1:
                return body[:at] + self.random.randbytes(self.random.randrange(1, 9)) + body[at + 1 :]
            case 2:
                return body[:at] + self.random.choice(_TOKENS) + body[at:]
            case 3:
                return body + body[at:]
            case 4:
                return body[:at] + body[at : at + 20] * self.random.randrange(200) + body[at:]
            case 5:
                return self.random.randbytes(self.random.randrange(400))
            case _:
                return body[:at] + self.random.choice(_TOKENS) * self.random.randrange(3000) + body[at:]

    def request(self) -> dict[str, Any]:
        kind = self.random.choice(_TYPES)
        body, headers = self.body(kind), {"Content-Type": kind}
        packing = self.random.randrange(6)
        if packing < 3:
            headers["Content-Encoding"] = self.random.choice(["gzip"] * 8 + ["GZIP", "identity", "br", "gzip, gzip"])
        if packing < 2:
            body = gzip.compress(body, 1)
        if packing == 1:
            body = self._mutated(body)
        method = self.random.choice(["POST"] * 20 + ["GET", "PUT", "DELETE"])
        return {"method": method, "url": self.random.choice(_PATHS), "content": body, "headers": headers}


def _over_http(url: str, seed: int, number: int) -> Counter[Any]:
    fuzzer, seen = Fuzzer(seed), Counter()
    with httpx.Client(base_url=url, timeout=60) as client:
        for _ in range(number):
            seen[client.request(**fuzzer.request()).status_code] += 1
    return seen


def _over_grpc(address: str, seed: int, number: int) -> Counter[Any]:
    fuzzer, seen = Fuzzer(seed), Counter()
    with grpc.insecure_channel(address) as channel:
        calls = [channel.unary_unary(signal.method) for signal in SIGNALS]
        for _ in range(number):
            body = fuzzer.request()["content"]
            try:
                fuzzer.random.choice(calls)(body, timeout=60)
                seen[grpc.StatusCode.OK] += 1
            except grpc.RpcError as error:
                seen[error.code()] += 1
    return seen


def _send(collector: Any, seed: int, number: int) -> Counter[Any]:
    share = max(1, number // THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        parts = [pool.submit(_over_http, collector.url, seed + at, share) for at in range(THREADS - 1)]
        parts.append(pool.submit(_over_grpc, collector.grpc_address, seed + THREADS, share))
        return sum((part.result() for part in parts), Counter())


def test_nothing_that_is_sent_fails_the_collector_or_stays_in_its_memory(collector):
    # What the first requests make it load and keep is no growth.
    _send(collector, SEED, REQUESTS // 4)
    before = collector.memory()
    seen = _send(collector, SEED + 1000, REQUESTS)
    # 307: a path with a slash too many.
    allowed = {200, 307, 400, 404, 405, 413, 415}
    allowed |= {getattr(grpc.StatusCode, code) for code in ("OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")}
    assert seen.keys() <= allowed
    # Every kind of answer was provoked, so the requests are as broken as they should be, and not all of them.
    assert seen.keys() >= {200, 400, 404, 405, 415, grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
    assert collector.memory() - before < 48
