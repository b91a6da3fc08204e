# SPDX-License-Identifier: Apache-2.0
"""Clients that send all three signals and remember what was acknowledged, to compare it with what is stored."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import httpx
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from sqlalchemy import Row, func, select

from kvflags.telemetry.attributes import Name
from kvflags.telemetry.events import EventName
from kvflags_collector.store.connect import engine_for
from kvflags_collector.store.database import Database
from kvflags_collector.store.outcome_tables import events, outcomes_day, outcomes_hour
from kvflags_collector.store.rollup_tables import dirty_minutes, rollups_minute
from kvflags_collector.store.telemetry_tables import spans

__all__ = ["Load", "stored", "waiting"]

_SPANS = 20
_HEADERS = {"Content-Type": "application/x-protobuf"}
_TOKENS = "kvflags.outcome.output_tokens"
_DELTA = 1


class _Batch(NamedTuple):
    """A request, and the names of what is in it."""

    signal: str
    names: set[str]
    body: bytes


class Load:
    """Clients that each send one batch after the other; a batch that was not acknowledged is sent again, as SDKs do.

    acknowledged: signal -> names. refused: the statuses of answers that were not 200.
    """

    def __init__(self, clients: int = 4) -> None:
        self.acknowledged: dict[str, set[str]] = defaultdict(set)
        self.refused: list[int] = []
        self.address = ""
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Returns when the last answer has come; safe to repeat."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def grows(self, number: int, limit_s: float = 60) -> None:
        """Wait until so many more spans were acknowledged."""
        goal, end = len(self.acknowledged["traces"]) + number, time.monotonic() + limit_s
        while len(self.acknowledged["traces"]) < goal:
            assert time.monotonic() < end, f"{self.acknowledged.keys()}, refused: {self.refused[-5:]}"
            time.sleep(0.01)

    def is_refused(self, limit_s: float = 60) -> None:
        """Wait until one more request was refused."""
        seen, end = len(self.refused), time.monotonic() + limit_s
        while len(self.refused) == seen:
            assert time.monotonic() < end, "everything is taken"
            time.sleep(0.01)

    def _send(self) -> None:
        # Without certificates, which take longer to load than hundreds of requests.
        with httpx.Client(headers=_HEADERS, timeout=20, trust_env=False, verify=False) as client:
            for make in itertools.cycle((_spans, _spans, _spans, _event, _outcome)):
                batch = make()
                while not self._acknowledged(client, batch):
                    if self._stop.wait(0.05):
                        return
                # One operation, which threads cannot interleave.
                self.acknowledged[batch.signal].update(batch.names)
                # Enough to be under way at any moment; more would only take what the collector needs to start.
                if self._stop.wait(0.01):
                    return

    def _acknowledged(self, client: httpx.Client, batch: _Batch) -> bool:
        try:
            answer = client.post(f"{self.address}/v1/{batch.signal}", content=batch.body)
        except httpx.HTTPError:
            return False
        if answer.status_code != 200:
            self.refused.append(answer.status_code)
        return answer.status_code == 200


def _spans() -> _Batch:
    request, names = ExportTraceServiceRequest(), set()
    scope = request.resource_spans.add().scope_spans.add()
    now = time.time_ns()
    for number in range(_SPANS):
        name = secrets.token_bytes(8)
        names.add(name.hex())
        scope.spans.add(
            name="kv.transfer",
            trace_id=secrets.token_bytes(16),
            span_id=name,
            start_time_unix_nano=now + number,
            end_time_unix_nano=now + number + 1_000_000,
        )
    return _Batch("traces", names, request.SerializeToString())


def _event() -> _Batch:
    request, name = ExportLogsServiceRequest(), secrets.token_hex(8)
    entry = request.resource_logs.add()
    entry.resource.attributes.append(_named(name))
    entry.scope_logs.add().log_records.add(event_name=EventName.FACT, time_unix_nano=time.time_ns())
    return _Batch("logs", {name}, request.SerializeToString())


def _outcome() -> _Batch:
    request, name = ExportMetricsServiceRequest(), secrets.token_hex(8)
    entry = request.resource_metrics.add()
    entry.resource.attributes.append(_named(name))
    metric = entry.scope_metrics.add().metrics.add(name=_TOKENS)
    metric.sum.aggregation_temporality = _DELTA
    now = time.time_ns()
    metric.sum.data_points.add(start_time_unix_nano=now, time_unix_nano=now, as_int=1)
    return _Batch("metrics", {name}, request.SerializeToString())


def _named(name: str) -> KeyValue:
    """Each comes from an engine of its own, so that its rows tell it from all others."""
    return KeyValue(key=Name.ENGINE, value=AnyValue(string_value=name))


def stored(url: str) -> dict[str, list[str]]:
    """What the database of a collector that has ended holds: signal -> a name for each time that it counts."""
    db = Database(url)
    with db.read() as conn:
        found = {
            "traces": [span.hex() for span in conn.scalars(select(spans.c.span_id))],
            "logs": list(conn.scalars(select(events.c.engine_id))),
            "metrics": _repeated(conn.execute(select(outcomes_hour.c.engine_id, outcomes_hour.c.points))),
        }
        days = _repeated(conn.execute(select(outcomes_day.c.engine_id, outcomes_day.c.points)))
    db.close()
    assert sorted(days) == sorted(found["metrics"])
    return found


def _repeated(rows: Iterable[Row[tuple[str, int]]]) -> list[str]:
    return [name for name, times in rows for _ in range(times)]


def waiting(url: str) -> tuple[int, int]:
    """(transfers in the roll-ups, minutes that wait to be rolled up); reads beside a running collector."""
    engine = engine_for(url)
    with engine.connect() as conn:
        counted = conn.scalar(select(func.coalesce(func.sum(rollups_minute.c.seen), 0))) or 0
        dirty = conn.scalar(select(func.count()).select_from(dirty_minutes)) or 0
    engine.dispose()
    return counted, dirty
