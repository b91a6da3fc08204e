# SPDX-License-Identifier: Apache-2.0
"""Hostile clients of a real process: bounded memory, and others are answered as if nothing was."""

from __future__ import annotations

import resource
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import grpc
import httpx
import pytest

from kvflags_collector.ingest.signals import TRACES

PROTOBUF = {"Content-Type": "application/x-protobuf"}


def _spans(request_of) -> bytes:
    now = time.time_ns()
    return request_of({"start_time_unix_nano": now, "end_time_unix_nano": now}).SerializeToString()


@pytest.fixture
def bystander(collector, request_of) -> Callable[[], object]:
    """bystander(): a context in which another client exports; at its end each was acknowledged, and soon."""

    @contextmanager
    def running() -> Iterator[None]:
        stop, waits = threading.Event(), []

        def export() -> None:
            with httpx.Client(base_url=collector.url, timeout=30) as client:
                while not stop.is_set() or len(waits) < 4:
                    began = time.monotonic()
                    answer = client.post("/v1/traces", content=_spans(request_of), headers=PROTOBUF)
                    assert answer.status_code == 200
                    waits.append(time.monotonic() - began)

        with ThreadPoolExecutor(1) as pool:
            exporting = pool.submit(export)
            try:
                yield
            finally:
                stop.set()
            exporting.result()
        # Clients give up after 10 s; on a busy machine this is still far from it.
        assert max(waits) < 5

    return running


def test_bombs_of_400_mib_over_both_transports_take_bounded_memory(collector, bystander):
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(400)) + packer.flush()
    kinds = ["application/x-protobuf", "application/json"] * 2

    def over_http(kind: str) -> int:
        headers = {"Content-Type": kind, "Content-Encoding": "gzip"}
        return httpx.post(f"{collector.url}/v1/traces", content=bomb, headers=headers, timeout=60).status_code

    def over_grpc(_: int) -> grpc.StatusCode:
        with grpc.insecure_channel(collector.grpc_address) as channel:
            try:
                channel.unary_unary(TRACES.method)(bomb, timeout=60)
            except grpc.RpcError as error:
                return error.code()
        return grpc.StatusCode.OK

    before = collector.memory()
    with bystander(), ThreadPoolExecutor(8) as pool:
        answers = pool.map(over_http, kinds), pool.map(over_grpc, range(4))
        assert [list(some) for some in answers] == [[413] * 4, [grpc.StatusCode.RESOURCE_EXHAUSTED] * 4]
    # Two decoders at once, each with at most 64 MiB and a step of 4.
    assert collector.memory("VmHWM") - before < 224


def test_hundreds_of_slow_connections_are_in_nobodys_way(collector, bystander):
    # As many as the limit on open files leaves to both sides.
    number = min(300, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
    address = (urlsplit(collector.url).hostname, urlsplit(collector.url).port)
    head = "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 60000000\r\n"
    starts = [b"", b"POST /v1/tra", head.encode(), f"{head}\r\n".encode(), f"{head}\r\nx".encode()]
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(address)) for _ in range(number)]
        for at, conn in enumerate(slow):
            conn.sendall(starts[at % len(starts)])
        with bystander():
            for conn in slow[4::5]:
                time.sleep(0.01)
                conn.sendall(b"x")


def test_silent_grpc_streams_make_room(collector, request_of):
    release = threading.Event()

    def silent() -> Iterator[bytes]:
        release.wait(60)
        yield from ()

    with ExitStack() as stack:
        stack.callback(release.set)
        channels = [
            # A channel of its own is a connection of its own.
            grpc.insecure_channel(collector.grpc_address, [("grpc.use_local_subchannel_pool", 1)])
            for _ in range(6)
        ]
        for channel in channels:
            stack.enter_context(channel)
        calls = [channel.stream_unary(TRACES.method).future(silent()) for channel in channels[1:] for _ in range(15)]
        export = channels[0].unary_unary(TRACES.method)
        for _ in range(4):
            began = time.monotonic()
            assert export(_spans(request_of), timeout=60) == b""
            assert time.monotonic() - began < 5
        # They were sent away because others waited, long before the 30 s that each may take.
        assert sum(call.done() for call in calls) > 0
