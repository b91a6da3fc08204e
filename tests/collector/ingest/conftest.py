# SPDX-License-Identifier: Apache-2.0
"""A real database file, a real writer, a real server, and requests made of real OTLP messages."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from starlette.applications import Starlette

from kvflags_collector.access.keyring import Keyring
from kvflags_collector.ingest.grpc import GrpcServer
from kvflags_collector.ingest.http import routes
from kvflags_collector.ingest.keeper import Keeper
from kvflags_collector.ingest.limits import Limits
from kvflags_collector.ingest.receiver import Receiver
from kvflags_collector.ingest.writer import Writer
from kvflags_collector.store.database import Database

# A fixed minute, 12:00:00 of a Saturday; tests of times count from here.
NOON = 1_798_891_200 * 10**9


class Client(httpx.Client):
    """Of both servers."""

    grpc_port: int
    receiver: Receiver


def _any(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    kind = {str: "string_value", int: "int_value", float: "double_value", bytes: "bytes_value"}[type(value)]
    return AnyValue(**{kind: value})


def _attributes(values: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_any(value)) for key, value in values.items()]


@pytest.fixture
def noon() -> int:
    return NOON


@pytest.fixture
def request_of() -> Callable[..., ExportTraceServiceRequest]:
    """request_of(span, ..., resource={...}): spans are dicts of field values, `attributes` a plain dict."""

    def build(*spans: dict[str, Any], resource: dict[str, Any] | None = None) -> ExportTraceServiceRequest:
        request = ExportTraceServiceRequest()
        entry = request.resource_spans.add()
        entry.resource.attributes.extend(_attributes(resource or {}))
        scope = entry.scope_spans.add()
        scope.scope.name = "kvflags"
        for number, fields in enumerate(spans, 1):
            given = {
                "trace_id": number.to_bytes(16, "big"),
                "span_id": number.to_bytes(8, "big"),
                "name": "kv.transfer",
                "start_time_unix_nano": NOON + number,
                "end_time_unix_nano": NOON + number + 1_000_000,
            } | fields
            attributes = _attributes(given.pop("attributes", {}))
            scope.spans.add(**given).attributes.extend(attributes)
        return request

    return build


@pytest.fixture
def mismatches() -> list[Any]:
    """What the writer told of failed handshakes."""
    return []


@pytest.fixture
def writer(db: Database, mismatches: list[Any]) -> Iterator[Writer]:
    made = Writer(db, on_mismatch=lambda conn, *failure: mismatches.append(failure), clock=lambda: NOON)
    made.start()
    yield made
    made.close()


@pytest.fixture
def keeper(db: Database) -> Iterator[Keeper]:
    made = Keeper(db)
    made.start()
    yield made
    made.close()


class _Both(uvicorn.Server):
    """HTTP and gRPC on one loop, as `kvflags serve` runs them."""

    def __init__(self, config: uvicorn.Config, grpc: GrpcServer) -> None:
        super().__init__(config)
        self.grpc = grpc
        self.grpc_port = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.grpc_port = await self.grpc.start()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.grpc.stop(1)
        await super().shutdown(sockets)


@pytest.fixture
def serve(writer: Writer, keeper: Keeper) -> Iterator[Callable[..., Client]]:
    """serve(limits): uvicorn and gRPC on free ports with one receiver; gives an HTTP client with its `grpc_port`."""
    stops: list[Callable[[], None]] = []

    def start(
        limits: Limits | None = None, clock: Callable[[], int] = lambda: NOON, keyring: Keyring | None = None
    ) -> Client:
        listener = socket.create_server(("127.0.0.1", 0))
        receiver = Receiver(writer, keeper, limits, clock)
        config = uvicorn.Config(Starlette(routes=list(routes(receiver))), log_level="warning")
        server = _Both(config, GrpcServer(receiver, "127.0.0.1:0", keyring=keyring))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        while not server.started:
            time.sleep(0.005)
        client = Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=30)
        client.grpc_port, client.receiver = server.grpc_port, receiver

        def stop() -> None:
            client.close()
            server.should_exit = True
            thread.join()
            listener.close()

        stops.append(stop)
        return client

    yield start
    for stop in stops:
        stop()


@dataclass
class Collector:
    """`kvflags serve` as a process of its own."""

    process: subprocess.Popen[str]
    url: str
    grpc_address: str

    def memory(self, name: str = "VmRSS") -> int:
        """MiB that it holds; `VmHWM`: at most held so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith(name)]
        return int(line.split()[1]) >> 10


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    command = [sys.executable, "-m", "kvflags_cli", "serve", "--port", "0", "--grpc-port", "0"]
    with subprocess.Popen(
        [*command, "--db", f"sqlite:///{tmp_path}/served.db"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        url, address = (word for word in words if "://" in word and "127.0.0.1" in word)
        yield Collector(process, url, address.removeprefix("grpc://"))
        process.terminate()
        # It outlived whatever was done to it, and had nothing to complain about.
        _, complaints = process.communicate(timeout=30)
        assert (process.returncode, complaints) == (0, "")
