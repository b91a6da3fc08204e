# SPDX-License-Identifier: Apache-2.0
"""What the OTLP specification asks and no other test shows, and the table that names the test of each of its rows."""

from __future__ import annotations

import ast
import json
import re
import socket
from collections import Counter
from pathlib import Path

import grpc
import pytest
from google.rpc.status_pb2 import Status

from kvflags_collector.ingest import receiver
from kvflags_collector.ingest.limits import Limits
from kvflags_collector.ingest.signals import SIGNALS, TRACES

TESTS = Path(__file__).parents[1]
TABLE = Path(__file__).parents[3] / "docs" / "otlp.md"
PROTOBUF, JSON = "application/x-protobuf", "application/json"


def _exchange(conn: socket.socket, head: str, body: bytes) -> tuple[str, dict[str, str], bytes]:
    """One request over an open connection, as bytes; the status line, headers and body of the answer."""
    conn.sendall(f"{head}\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    stream = conn.makefile("rb")
    line = stream.readline().decode().strip()
    headers = {}
    while text := stream.readline().decode().strip():
        name, _, value = text.partition(":")
        headers[name.lower()] = value.strip()
    return line, headers, stream.read(int(headers["content-length"]))


@pytest.fixture
def wire(serve):
    """wire(limits): an open connection."""
    opened = []

    def connect(limits: Limits | None = None) -> socket.socket:
        url = serve(limits).base_url
        opened.append(socket.create_connection((url.host, url.port), timeout=20))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


def test_a_connection_serves_many_requests(wire, request_of):
    conn = wire()
    head, body = f"POST /v1/traces HTTP/1.1\r\nContent-Type: {PROTOBUF}", request_of({}).SerializeToString()
    for _ in range(3):
        assert _exchange(conn, head, body)[0] == "HTTP/1.1 200 OK"
    # A refusal ends nothing either.
    assert _exchange(conn, head, b"\xff")[0] == "HTTP/1.1 400 Bad Request"
    assert _exchange(conn, head, body)[0] == "HTTP/1.1 200 OK"


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: signal.name)
@pytest.mark.parametrize(("kind", "body", "empty"), [(PROTOBUF, b"", b""), (JSON, b"{}", b"{}")])
def test_success_is_200_in_the_encoding_of_the_request(wire, signal, kind, body, empty):
    line, headers, answer = _exchange(wire(), f"POST {signal.path} HTTP/1.1\r\nContent-Type: {kind}", body)
    assert (line, headers["content-type"], answer) == ("HTTP/1.1 200 OK", kind, empty)


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
@pytest.mark.parametrize(
    ("start", "extra", "body", "status", "code"),
    [
        ("POST /v1/traces", "", b"\xff\xff", 400, 3),
        ("POST /v1/profiles", "", b"", 404, 5),
        ("GET /v1/traces", "", b"", 405, 12),
        ("POST /v1/metrics", "", b"x" * 101, 413, 8),
        ("POST /v1/logs", "\r\nContent-Encoding: zstd", b"", 415, 3),
    ],
)
def test_every_refusal_is_a_status_in_the_encoding_of_the_request(wire, kind, start, extra, body, status, code):
    line, headers, answer = _exchange(wire(Limits(body=100)), f"{start} HTTP/1.1\r\nContent-Type: {kind}{extra}", body)
    assert (line.split()[1], headers["content-type"]) == (str(status), kind)
    told = json.loads(answer) if kind == JSON else Status.FromString(answer)
    assert (told["code"] if kind == JSON else told.code) == code
    assert (told["message"] if kind == JSON else told.message).isascii()


def _broken() -> int:
    raise OSError("no clock")


@pytest.mark.parametrize("quick", [True, False])
def test_a_fault_of_ours_is_a_status_too(monkeypatch, quick, serve, request_of, caplog):
    # Nothing can be decoded any more, in the one thread or the other.
    monkeypatch.setattr(receiver, "_QUICK", receiver._QUICK if quick else 0)
    client = serve()
    client.receiver._clock = _broken
    body = request_of({}).SerializeToString()
    answer = client.post("/v1/traces", content=body, headers={"Content-Type": PROTOBUF})
    expected = Status(code=13, message="the collector failed: see its log")
    assert (answer.status_code, Status.FromString(answer.content)) == (500, expected)
    with grpc.insecure_channel(f"127.0.0.1:{client.grpc_port}") as channel, pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(TRACES.method)(body, timeout=20)
    assert (raised.value.code(), raised.value.details()) == (grpc.StatusCode.INTERNAL, expected.message)
    assert caplog.text.count("could not take a request of traces") == 2


def test_envelopes_without_spans_are_ignored(wire):
    request = TRACES.request()
    request.resource_spans.add().scope_spans.add()
    request.resource_spans.add()
    head = f"POST /v1/traces HTTP/1.1\r\nContent-Type: {PROTOBUF}"
    line, _, answer = _exchange(wire(), head, request.SerializeToString())
    assert (line, answer) == ("HTTP/1.1 200 OK", b"")


def test_an_answer_is_short_whatever_was_sent():
    answer = TRACES.answer(Counter({f"{number} {'x' * 500}": 1 for number in range(100)}))
    assert answer.partial_success.rejected_spans == 100
    assert len(answer.SerializeToString()) < 5000


def test_nothing_rejected_leaves_partial_success_unset():
    assert not any(signal.answer(Counter()).HasField("partial_success") for signal in SIGNALS)


def _named() -> list[tuple[str, str]]:
    return re.findall(r"`(test_\w+\.py)::(test_\w+)`", TABLE.read_text())


def test_every_test_that_the_table_names_exists():
    files = {name: ast.parse(next(TESTS.rglob(name)).read_text()) for name, _ in _named()}
    tests = {
        (name, node.name) for name, tree in files.items() for node in tree.body if isinstance(node, ast.FunctionDef)
    }
    assert set(_named()) <= tests


def test_every_row_of_the_table_names_a_test():
    rows = [line for line in TABLE.read_text().splitlines() if line.startswith(("| MUST", "| SHOULD"))]
    assert len(rows) >= 15
    assert all("`test_" in row for row in rows)
