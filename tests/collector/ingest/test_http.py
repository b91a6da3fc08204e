# SPDX-License-Identifier: Apache-2.0
"""OTLP/HTTP over a real socket: what clients are answered, to the letter of the specification."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from databases import stalled
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from sqlalchemy import func, select

from kvflags_collector.ingest.limits import Limits, Refused
from kvflags_collector.store.telemetry_tables import spans

PROTOBUF = {"Content-Type": "application/x-protobuf"}
GZIP = PROTOBUF | {"Content-Encoding": "gzip"}
HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 900\r\n\r\n"


def _stored(db) -> int:
    with db.read() as conn:
        return conn.scalar(select(func.count()).select_from(spans)) or 0


def _status(answer) -> Status:
    assert answer.headers["content-type"] == "application/x-protobuf"
    return Status.FromString(answer.content)


def test_a_full_success_is_200_with_an_empty_message(serve, db, request_of):
    body = request_of({}, {}).SerializeToString()
    answer = serve().post("/v1/traces", content=body, headers=PROTOBUF)
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "application/x-protobuf", b"")
    assert _stored(db) == 2


@pytest.mark.parametrize(
    ("headers", "pack"),
    [
        (GZIP, gzip.compress),
        (PROTOBUF | {"Content-Encoding": "GZIP"}, gzip.compress),
        (GZIP, lambda body: gzip.compress(body[:9], mtime=0) + gzip.compress(body[9:], mtime=0)),
        (PROTOBUF | {"Content-Encoding": "identity"}, bytes),
        ({"Content-Type": "application/x-protobuf; charset=utf-8"}, bytes),
        ({"Content-Type": "Application/X-Protobuf ;x=y"}, bytes),
    ],
)
def test_every_way_to_send_protobuf_is_taken(serve, db, request_of, headers, pack):
    answer = serve().post("/v1/traces", content=pack(request_of({}).SerializeToString()), headers=headers)
    assert (answer.status_code, _stored(db)) == (200, 1)


def test_chunked_bodies_are_taken(serve, db, request_of):
    body = request_of({}, {}, {}).SerializeToString()
    chunks = (body[at : at + 7] for at in range(0, len(body), 7))
    assert (serve().post("/v1/traces", content=chunks, headers=PROTOBUF).status_code, _stored(db)) == (200, 3)


@pytest.mark.parametrize(("headers", "body"), [(PROTOBUF, b""), (GZIP, gzip.compress(b"", mtime=0))])
def test_an_empty_request_succeeds(serve, headers, body):
    answer = serve().post("/v1/traces", content=body, headers=headers)
    assert (answer.status_code, answer.content) == (200, b"")


def test_rejected_spans_are_a_partial_success_with_the_exact_count(serve, db, request_of):
    body = request_of(
        {}, {"span_id": b""}, {"start_time_unix_nano": 1}, {"start_time_unix_nano": 2}
    ).SerializeToString()
    answer = serve().post("/v1/traces", content=body, headers=PROTOBUF)
    assert answer.status_code == 200
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (partial.rejected_spans, partial.error_message) == (
        3,
        "spans not stored: 2 that started more than 7 days ago or more than an hour ahead, "
        "1 with an id that is not 16 and 8 bytes long, or all zeros",
    )
    assert _stored(db) == 1


def test_a_repeated_request_is_counted_once(serve, db, request_of):
    client, body = serve(), request_of({}, {}).SerializeToString()
    for _ in range(3):
        assert client.post("/v1/traces", content=body, headers=PROTOBUF).status_code == 200
    assert _stored(db) == 2


@pytest.mark.parametrize(
    ("headers", "body", "message"),
    [
        (PROTOBUF, b"\xff\xff", "the body is not an ExportTraceServiceRequest: Error parsing message"),
        (GZIP, b"plain", "the body is not gzip: Error -3 while decompressing data: incorrect header check"),
        (GZIP, gzip.compress(b"abc", mtime=0)[:-1], "the gzip body ends before its end mark"),
        (GZIP, gzip.compress(b"", mtime=0) * 9, "the gzip body has more than 8 members"),
    ],
)
def test_what_cannot_be_decoded_is_400_with_a_status_and_the_violation(serve, headers, body, message):
    answer = serve().post("/v1/traces", content=body, headers=headers)
    status, detail = _status(answer), BadRequest()
    assert (answer.status_code, status.code, status.message.partition(" with type")[0]) == (400, 3, message)
    assert status.details[0].Unpack(detail)
    assert [(v.field, v.description) for v in detail.field_violations] == [("body", status.message)]


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"Content-Type": "text/plain"}, "Content-Type must be application/x-protobuf or application/json"),
        ({}, "Content-Type must be application/x-protobuf or application/json"),
        (PROTOBUF | {"Content-Encoding": "br"}, "Content-Encoding must be gzip, or absent"),
        (PROTOBUF | {"Content-Encoding": "gzip, gzip"}, "Content-Encoding must be gzip, or absent"),
    ],
)
def test_other_types_and_encodings_are_415(serve, headers, message):
    answer = serve().post("/v1/traces", content=b"x", headers=headers)
    assert (answer.status_code, _status(answer)) == (415, Status(code=3, message=message))


def test_json_is_refused_in_json(serve):
    answer = serve().post("/v1/traces", json={"resourceSpans": []}, headers={"Content-Encoding": "br"})
    assert (answer.status_code, answer.headers["content-type"]) == (415, "application/json")
    assert json.loads(answer.content) == {"code": 3, "message": "Content-Encoding must be gzip, or absent"}


def test_other_signals_are_404(serve):
    answer = serve().post("/v1/profiles", content=b"", headers=PROTOBUF)
    message = "this collector receives /v1/traces, /v1/metrics, /v1/logs, not /v1/profiles"
    assert (answer.status_code, _status(answer)) == (404, Status(code=5, message=message))


def test_other_methods_are_405(serve):
    answer = serve().get("/v1/traces")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert _status(answer) == Status(code=12, message="spans are sent with POST")


def test_a_body_above_the_limit_is_413_however_it_comes(serve):
    client = serve(Limits(body=1000))
    ways = [
        (PROTOBUF, b"x" * 1001),
        (PROTOBUF, (b"x" * 100 for _ in range(11))),
        (GZIP, gzip.compress(b"x" * 1001, mtime=0)),
    ]
    answers = [client.post("/v1/traces", content=content, headers=headers) for headers, content in ways]
    assert [(answer.status_code, _status(answer).code) for answer in answers] == [(413, 8)] * 3


def test_a_gzip_bomb_is_413_and_takes_no_memory(serve):
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(100)) + packer.flush()
    client = serve()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answers = [client.post("/v1/traces", content=bomb, headers=GZIP) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [413] * 5
    # 100 KB may inflate to 200 times that, 20 MB, of which 16 are held when the next step passes it. In KiB on Linux.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 48 * 1024


def test_when_too_much_is_in_flight_clients_are_asked_to_wait(serve, request_of):
    client = serve(Limits(in_flight=1000))
    with socket.create_connection((client.base_url.host, client.base_url.port)) as slow:
        slow.sendall(HEAD + b"x" * 899)
        body = request_of({}, {}).SerializeToString()
        # The server reads at its own pace: small exports pass until it has counted those bytes.
        while (answer := client.post("/v1/traces", content=body, headers=PROTOBUF)).status_code == 200:
            pass
        assert (answer.status_code, answer.headers["retry-after"] in "123") == (503, True)
        status, wait = _status(answer), RetryInfo()
        assert (status.code, status.message) == (14, "the collector is behind with storing: try again")
        assert status.details[0].Unpack(wait)
        assert wait.retry_delay.seconds == int(answer.headers["retry-after"])
    while client.post("/v1/traces", content=body, headers=PROTOBUF).status_code == 503:
        pass


def test_what_is_announced_but_not_sent_shuts_nobody_out(serve, request_of):
    client = serve(Limits(in_flight=1000))
    with socket.create_connection((client.base_url.host, client.base_url.port)) as slow:
        slow.sendall(HEAD + b"x")
        _wait_until(lambda: client.receiver.budget.used)
        body = request_of({}, {}).SerializeToString()
        assert client.post("/v1/traces", content=body, headers=PROTOBUF).status_code == 200


def test_large_bodies_leave_room_for_small_ones(serve, request_of):
    large = 4 << 20
    client = serve(Limits(in_flight=2 * large))
    with socket.create_connection((client.base_url.host, client.base_url.port)) as slow:
        slow.sendall(HEAD.replace(b"900", b"%d" % large) + b"x" * (large - 1))
        _wait_until(lambda: client.receiver.budget.used == large - 1)
        assert client.post("/v1/traces", content=b"x" * large, headers=PROTOBUF).status_code == 503
        assert (
            client.post("/v1/traces", content=request_of({}).SerializeToString(), headers=PROTOBUF).status_code == 200
        )


def test_a_stalled_writer_refuses_before_the_body(serve, db, request_of):
    client = serve(Limits(stall_s=0.2))
    address = (client.base_url.host, client.base_url.port)
    with ThreadPoolExecutor() as pool:
        with stalled(db):
            waiting = pool.submit(
                client.post, "/v1/traces", content=request_of({}).SerializeToString(), headers=PROTOBUF
            )
            _wait_until(lambda: _refusal(client) == "the collector cannot store anything at present: try again")
            with socket.create_connection(address) as other:
                other.sendall(HEAD)
                assert other.recv(100).startswith(b"HTTP/1.1 503 ")
        assert waiting.result().status_code == 200
    assert _refusal(client) == ""


def _refusal(client) -> str:
    """Why a request would be refused unread, or ""."""
    try:
        client.receiver.admit()
    except Refused as refusal:
        return refusal.message
    return ""


def _wait_until(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_trickling_body_is_given_up(serve):
    client = serve(Limits(read_s=0.2))
    with socket.create_connection((client.base_url.host, client.base_url.port)) as slow:
        slow.sendall(HEAD + b"x")
        assert slow.recv(100).startswith(b"HTTP/1.1 408 ")


def test_many_clients_at_once_lose_nothing(serve, db, request_of, noon):
    client = serve()

    def send(sender: int) -> None:
        for batch in range(5):
            ids = ({"span_id": (sender * 1000 + batch * 100 + n + 1).to_bytes(8, "big")} for n in range(20))
            body = gzip.compress(request_of(*ids).SerializeToString())
            assert client.post("/v1/traces", content=body, headers=GZIP).status_code == 200

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _stored(db) == 800


def test_a_stopped_writer_asks_clients_to_come_back(serve, writer, request_of):
    client = serve()
    writer.close()
    answer = client.post("/v1/traces", content=request_of({}).SerializeToString(), headers=PROTOBUF)
    assert (answer.status_code, _status(answer).message) == (503, "the collector is stopping: try again")
