# SPDX-License-Identifier: Apache-2.0
"""One request: what is sent, and what each answer means."""

import gzip
import socket
import zlib

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from kvflags import __version__
from kvflags.telemetry.answer import Answer, Outcome
from kvflags.telemetry.wire import Wire


@pytest.fixture
def make():
    """Wire, closed at the end."""
    wires = []

    def wire(url, token=None, environ=None):
        wires.append(Wire(url, token, environ or {}))
        return wires[-1]

    yield wire
    for made in wires:
        made.close()


def test_sends_to_the_collectors_own_address_with_its_own_token(collector, make):
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer other,x-other=1",
    }
    wire = make(collector.url + "/base/", "secret", environ)
    assert wire.send(b"abc") == Answer(Outcome.STORED)
    assert wire.send(b"def") == Answer(Outcome.STORED)
    assert collector.paths == ["/base/v1/traces"] * 2
    assert collector.bodies == [b"abc", b"def"]
    assert collector.headers[0] == {
        "host": collector.url.removeprefix("http://"),
        "accept-encoding": "identity",
        "content-length": "3",
        "content-type": "application/x-protobuf",
        "user-agent": f"kvflags/{__version__}",
        "authorization": "Bearer secret",
    }


def test_without_a_token_no_credentials_are_sent(collector, make):
    make(collector.url).send(b"abc")
    assert "authorization" not in collector.headers[0]


@pytest.mark.parametrize(("name", "unpack"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)])
def test_compresses_as_asked(collector, make, name, unpack):
    make(collector.url, None, {"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": name}).send(b"abc")
    assert collector.headers[0]["content-encoding"] == name
    assert unpack(collector.bodies[0]) == b"abc"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (301, Outcome.LATER),
        (400, Outcome.REFUSED),
        (401, Outcome.LATER),
        (404, Outcome.LATER),
        (413, Outcome.REFUSED),
        (429, Outcome.LATER),
        (500, Outcome.LATER),
        (503, Outcome.LATER),
    ],
)
def test_an_answer_other_than_200(collector, make, status, outcome):
    collector.status = status
    answer = make(collector.url).send(b"abc")
    assert answer.outcome is outcome
    assert str(status) in answer.says


def test_spans_refused_within_a_batch_are_counted(collector, make):
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = 7
    collector.reply = response.SerializeToString()
    assert make(collector.url).send(b"abc") == Answer(Outcome.STORED, rejected=7)
    collector.reply = b"\xff\xff not protobuf"
    assert make(collector.url).send(b"abc") == Answer(Outcome.STORED)


def test_nobody_there(make):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    answer = make(url).send(b"abc")
    assert answer.outcome is Outcome.LATER
    assert "ConnectionRefusedError" in answer.says


def test_accepts_and_never_answers(collector, make):
    collector.answer.clear()
    answer = make(collector.url, None, {"OTEL_EXPORTER_OTLP_TIMEOUT": "0.05"}).send(b"abc")
    assert answer.outcome is Outcome.LATER
    assert "TimeoutError" in answer.says


@pytest.mark.parametrize(("text", "seconds"), [("", 10.0), ("3", 3.0), ("-1", 10.0), ("inf", 10.0), ("soon", 10.0)])
def test_the_timeout(make, text, seconds):
    assert make("http://127.0.0.1:1", None, {"OTEL_EXPORTER_OTLP_TIMEOUT": text}).timeout_s == seconds


@pytest.mark.parametrize("how", [socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR])
def test_on_a_connection_that_was_closed_meanwhile_nothing_fails(collector, make, how):
    wire = make(collector.url)
    assert wire.send(b"1").outcome is Outcome.STORED
    wire._connection.sock.shutdown(how)  # as a restarted collector leaves it, or one that it was too quiet for
    assert wire.send(b"2").outcome is Outcome.STORED
    assert collector.bodies[-1] == b"2"


def test_a_collector_that_closes_each_connection_is_tried_on_one_new_one(collector, make, monkeypatch):
    wire = make(collector.url)
    assert wire.send(b"1").outcome is Outcome.STORED
    monkeypatch.setattr(collector, "status", None)  # its handler fails, and the connection ends without an answer
    answer = wire.send(b"2")
    assert answer.outcome is Outcome.LATER
    assert collector.bodies[1:] == [b"2", b"2"]
