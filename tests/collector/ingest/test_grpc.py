# SPDX-License-Identifier: Apache-2.0
"""OTLP/gRPC over a real connection: codes, what clients read to come back, and the same limits as over HTTP."""

from __future__ import annotations

import gzip
import resource
import threading
import zlib

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from sqlalchemy import func, select

from kvflags_collector.access import tokens
from kvflags_collector.access.keyring import Keyring
from kvflags_collector.access.scopes import Scope
from kvflags_collector.ingest.limits import Limits
from kvflags_collector.ingest.signals import SIGNALS, TRACES
from kvflags_collector.store.telemetry_tables import spans


@pytest.fixture
def export(serve):
    """export(limits): a function that sends bytes as one signal, over one channel, and gives the answer's bytes."""
    channels = []

    def start(limits: Limits | None = None, compression: grpc.Compression | None = None):
        client = serve(limits)
        channel = grpc.insecure_channel(f"127.0.0.1:{client.grpc_port}", compression=compression)
        channels.append(channel)

        def send(body: bytes, method: str = TRACES.method) -> bytes:
            return channel.unary_unary(method)(body, timeout=20)

        send.client = client
        return send

    yield start
    for channel in channels:
        channel.close()


def _stored(db) -> int:
    with db.read() as conn:
        return conn.scalar(select(func.count()).select_from(spans)) or 0


def _refused(call, *arguments) -> tuple[grpc.StatusCode, Status, dict[str, bytes]]:
    with pytest.raises(grpc.RpcError) as raised:
        call(*arguments)
    trailers = dict(raised.value.trailing_metadata())
    status = Status.FromString(trailers["grpc-status-details-bin"])
    assert (status.code, status.message) == (raised.value.code().value[0], raised.value.details())
    return raised.value.code(), status, trailers


@pytest.mark.parametrize("compression", [None, grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_spans_are_stored_and_a_full_success_is_an_empty_message(export, db, request_of, compression):
    answer = export(compression=compression)(request_of({}, {}).SerializeToString())
    assert (answer, _stored(db)) == (b"", 2)


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: signal.name)
def test_an_empty_request_of_each_signal_succeeds(export, signal):
    assert export()(b"", signal.method) == b""


def test_rejected_spans_are_a_partial_success(export, request_of):
    answer = export()(request_of({}, {"span_id": b""}).SerializeToString())
    assert ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans == 1


def test_foreign_metrics_and_logs_are_counted(export):
    send = export()
    [metrics, logs] = [signal.request() for signal in SIGNALS[1:]]
    metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="m").gauge.data_points.add(as_int=1)
    logs.resource_logs.add().scope_logs.add().log_records.add(severity_text="INFO")
    partial = ExportMetricsServiceResponse.FromString(send(metrics.SerializeToString(), SIGNALS[1].method))
    assert partial.partial_success.rejected_data_points == 1
    partial = ExportLogsServiceResponse.FromString(send(logs.SerializeToString(), SIGNALS[2].method))
    assert partial.partial_success.rejected_log_records == 1


@pytest.mark.parametrize("body", [b"\xff\xff", b"\x1f\x8bbroken"])
def test_garbage_is_an_invalid_argument_with_the_violation(export, body):
    code, status, trailers = _refused(export(), body)
    detail = BadRequest()
    assert status.details[0].Unpack(detail)
    assert (code, detail.field_violations[0].field) == (grpc.StatusCode.INVALID_ARGUMENT, "body")
    assert "google.rpc.retryinfo-bin" not in trailers


def test_an_unknown_method_is_unimplemented(export):
    with pytest.raises(grpc.RpcError) as raised:
        export()(b"", "/opentelemetry.proto.collector.profiles.v1.ProfilesService/Export")
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_beyond_four_mebibytes_is_taken(export, db, request_of):
    body = request_of({"attributes": {"long": "x" * (5 << 20)}}).SerializeToString()
    assert (export()(body), _stored(db)) == (b"", 1)


def test_above_the_limit_no_retry_is_asked_for(export):
    plain, zipped = export(Limits(body=1000)), gzip.compress(b"x" * 2000)
    with pytest.raises(grpc.RpcError) as raised:
        plain(b"x" * 2000)
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not dict(raised.value.trailing_metadata())
    code, _, trailers = _refused(plain, zipped)
    assert (code, "google.rpc.retryinfo-bin" in trailers) == (grpc.StatusCode.RESOURCE_EXHAUSTED, False)


def test_a_gzip_bomb_takes_no_memory(export):
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(400)) + packer.flush()
    send = export()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert _refused(send, bomb)[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    # 400 KB may inflate to the limit of 64 MiB, and a step of 4 beyond. In KiB on Linux.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_a_writer_that_is_behind_says_when_to_come_back_in_both_ways(export, writer, request_of):
    send = export()
    writer.close()
    code, status, trailers = _refused(send, request_of({}).SerializeToString())
    in_details = RetryInfo()
    assert code == grpc.StatusCode.UNAVAILABLE
    assert status.details[0].Unpack(in_details)
    assert in_details == RetryInfo.FromString(trailers["google.rpc.retryinfo-bin"])
    assert 1 <= in_details.retry_delay.seconds <= 3


def test_a_token_is_asked_for_before_the_message(serve, db, request_of):
    def token(scope: Scope) -> str:
        with db.write() as conn:
            return tokens.create(conn, name=scope.value, scope=scope, author="ann", now=1)["token"]

    headers = [[], [("authorization", "Bearer nonsense")]]
    headers += [[("authorization", f"Bearer {token(scope)}")] for scope in (Scope.READ, Scope.INGEST)]
    keyring = Keyring(db, tokenless=frozenset(), clock=lambda: 2)
    keyring.reload()
    release, answers = threading.Event(), []

    def silent():
        release.wait(20)
        yield request_of({}).SerializeToString()

    with grpc.insecure_channel(f"127.0.0.1:{serve(keyring=keyring).grpc_port}") as channel:
        export = channel.stream_unary(TRACES.method)
        for metadata in headers[:3]:
            code, _, trailers = _refused(export.future(silent(), timeout=20, metadata=metadata).result)
            answers.append((code, "google.rpc.retryinfo-bin" in trailers))
        release.set()
        assert export(silent(), timeout=20, metadata=headers[3]) == b""
    unauthenticated, denied = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
    assert answers == [(unauthenticated, False), (unauthenticated, False), (denied, False)]
    assert _stored(db) == 1


def test_one_budget_for_both_transports(export, request_of):
    send = export(Limits(in_flight=1000))
    body = request_of({}).SerializeToString()
    with send.client.receiver.budget.hold() as held:
        held.add(1000)
        assert _refused(send, body)[0] == grpc.StatusCode.UNAVAILABLE
        headers = {"Content-Type": "application/x-protobuf"}
        assert send.client.post("/v1/traces", content=body, headers=headers).status_code == 503
    assert send(body) == b""


def test_a_message_that_never_comes_is_given_up_and_others_pass(export, request_of):
    send, release = export(Limits(read_s=0.3)), threading.Event()

    def silent():
        release.wait(20)
        yield from ()

    with grpc.insecure_channel(f"127.0.0.1:{send.client.grpc_port}") as channel:
        call = channel.stream_unary(TRACES.method).future(silent(), timeout=20)
        assert send(request_of({}).SerializeToString()) == b""
        code, _, _ = _refused(call.result)
        release.set()
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED
