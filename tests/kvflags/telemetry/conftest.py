# SPDX-License-Identifier: Apache-2.0
"""A collector in a thread that stores what it gets, and answers what a test tells it to."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from kvflags.telemetry.resource import operators


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *args: object) -> None:
        """A client that gave up waiting is part of some tests."""


class FakeCollector:
    """`status` and `reply` are the next answers; `hang` keeps requests without one until it is set."""

    def __init__(self) -> None:
        self.status, self.reply = 200, b""
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.answer = threading.Event()
        self.answer.set()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                fake.paths.append(self.path)
                fake.headers.append({name.lower(): value for name, value in self.headers.items()})
                fake.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                fake.answer.wait(20)
                self.send_response(fake.status)
                self.send_header("Content-Length", str(len(fake.reply)))
                self.end_headers()
                self.wfile.write(fake.reply)

            def log_message(self, *args: object) -> None:
                pass

        self._server = _Quiet(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def spans(self) -> list[object]:
        return [span for body in self.bodies for span in self.spans_in(body)]

    @staticmethod
    def spans_in(body: bytes) -> list[object]:
        request = ExportTraceServiceRequest.FromString(body)
        return [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]

    def wait_for(self, bodies: int, timeout_s: float = 5.0) -> None:
        deadline = time.monotonic() + timeout_s
        while len(self.bodies) < bodies and time.monotonic() < deadline:
            time.sleep(0.005)
        assert len(self.bodies) >= bodies

    def close(self) -> None:
        self.answer.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """The environment is read once in a process; here each test has its own."""
    operators.cache_clear()
    yield
    operators.cache_clear()


@pytest.fixture
def collector() -> Iterator[FakeCollector]:
    fake = FakeCollector()
    yield fake
    fake.close()
