# SPDX-License-Identifier: Apache-2.0
"""The official OpenTelemetry exporters, unmodified: every signal, both transports, with and without gzip."""

from __future__ import annotations

import threading
import time
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from sqlalchemy import func, select

from kvflags_collector.ingest.limits import Limits
from kvflags_collector.store.outcome_tables import events
from kvflags_collector.store.telemetry_tables import spans

RESOURCE = Resource({"kvflags.deployment": "c/ns/a"})
WAYS = [(protocol, zipped) for protocol in ("http", "grpc") for zipped in (False, True)]


def _exporter(client: Any, protocol: str, zipped: bool, http: Any, over_grpc: Any, path: str) -> Any:
    if protocol == "http":
        compression = Compression.Gzip if zipped else Compression.NoCompression
        return http(endpoint=f"{client.base_url}{path}", compression=compression)
    compression = grpc.Compression.Gzip if zipped else grpc.Compression.NoCompression
    return over_grpc(endpoint=f"http://127.0.0.1:{client.grpc_port}", insecure=True, compression=compression)


def _send(exporter: Any, number: int) -> None:
    provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("kvflags")
    for value in range(number):
        tracer.start_span("kv.transfer", attributes={"kvflags.transfer.bytes": value}).end()
    provider.shutdown()


def _sums(db: Any) -> tuple[int, int]:
    with db.read() as conn:
        return tuple(conn.execute(select(func.count(), func.sum(spans.c.bytes))).one())


@pytest.mark.parametrize(("protocol", "zipped"), WAYS)
def test_spans_arrive(serve, db, protocol, zipped):
    client = serve(clock=time.time_ns)
    _send(_exporter(client, protocol, zipped, HttpSpans, GrpcSpans, "/v1/traces"), 1000)
    assert _sums(db) == (1000, 499_500)


@pytest.mark.parametrize(("protocol", "zipped"), WAYS)
def test_events_arrive(serve, db, protocol, zipped):
    client = serve(clock=time.time_ns)
    provider = LoggerProvider(RESOURCE, shutdown_on_exit=False)
    exporter = _exporter(client, protocol, zipped, HttpLogs, GrpcLogs, "/v1/logs")
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    provider.get_logger("kvflags").emit(
        event_name="kvflags.drops", timestamp=time.time_ns(), attributes={"kvflags.dropped.spans": 7}
    )
    provider.shutdown()
    with db.read() as conn:
        [row] = conn.execute(select(events)).mappings()
    assert (row["deployment"], row["attributes"]) == ("c/ns/a", {"kvflags.dropped.spans": 7})


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_what_a_collector_was_too_busy_for_is_sent_again(serve, db, protocol, caplog):
    client = serve(Limits(in_flight=1000), clock=time.time_ns)
    exporter = _exporter(client, protocol, False, HttpSpans, GrpcSpans, "/v1/traces")
    with client.receiver.budget.hold() as held:
        held.add(1000)
        sending = threading.Thread(target=_send, args=(exporter, 10))
        sending.start()
        deadline = time.monotonic() + 20
        while "retrying in" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    sending.join()
    assert _sums(db) == (10, 45)
