# SPDX-License-Identifier: Apache-2.0
"""A real `kvflags serve` under load by threads that remember what was acknowledged, and what the database holds."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from sqlalchemy import func, select

from kvflags_collector.store.connect import engine_for
from kvflags_collector.store.database import Database
from kvflags_collector.store.rollup_tables import dirty_minutes, rollups_minute
from kvflags_collector.store.telemetry_tables import spans

_SPANS = 20
_HEADERS = {"Content-Type": "application/x-protobuf"}


class Load:
    """Clients that each send one batch after the other; a batch that was not acknowledged is sent again, as SDKs do."""

    def __init__(self, clients: int = 4) -> None:
        self.acknowledged: set[bytes] = set()
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

    def grows(self, number: int, limit_s: float = 30) -> None:
        """Wait until so many more spans were acknowledged."""
        goal, end = len(self.acknowledged) + number, time.monotonic() + limit_s
        while len(self.acknowledged) < goal:
            assert time.monotonic() < end, f"{len(self.acknowledged)} acknowledged, refused: {self.refused[-5:]}"
            time.sleep(0.01)

    def _send(self) -> None:
        while not self._stop.is_set():
            ids, body = _batch()
            while not self._stop.is_set():
                if self._acknowledged(body):
                    # One operation, which threads cannot interleave.
                    self.acknowledged.update(ids)
                    break
                time.sleep(0.05)

    def _acknowledged(self, body: bytes) -> bool:
        try:
            answer = httpx.post(
                f"{self.address}/v1/traces", content=body, headers=_HEADERS, timeout=10, trust_env=False
            )
        except httpx.HTTPError:
            return False
        if answer.status_code != 200:
            self.refused.append(answer.status_code)
        return answer.status_code == 200


def _batch() -> tuple[set[bytes], bytes]:
    request, ids = ExportTraceServiceRequest(), set()
    scope = request.resource_spans.add().scope_spans.add()
    now = time.time_ns()
    for number in range(_SPANS):
        name = secrets.token_bytes(8)
        ids.add(name)
        scope.spans.add(
            name="kv.transfer",
            trace_id=secrets.token_bytes(16),
            span_id=name,
            start_time_unix_nano=now + number,
            end_time_unix_nano=now + number + 1_000_000,
        )
    return ids, request.SerializeToString()


@contextmanager
def serving(url: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """(process, address) of a collector that is ready; killed at the end if it still runs."""
    command = [sys.executable, "-m", "kvflags_cli", "serve", "--port", "0", "--db", url, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, "it did not start"
            yield process, line.split()[4]
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture
def serve() -> Callable[..., object]:
    return serving


@pytest.fixture
def load() -> Iterator[Load]:
    with Load() as running:
        yield running


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/kvflags.db"


@pytest.fixture
def stored(url) -> Callable[[], list[bytes]]:
    """The ids of all spans in the database of a collector that has ended."""

    def read() -> list[bytes]:
        db = Database(url)
        with db.read() as conn:
            found = list(conn.scalars(select(spans.c.span_id)))
        db.close()
        return found

    return read


@pytest.fixture
def rolled_up(url) -> Callable[[], tuple[int, int]]:
    """(transfers in the roll-ups, minutes that wait to be rolled up); reads beside a running collector."""

    def read() -> tuple[int, int]:
        engine = engine_for(url)
        with engine.connect() as conn:
            counted = conn.scalar(select(func.coalesce(func.sum(rollups_minute.c.seen), 0))) or 0
            waiting = conn.scalar(select(func.count()).select_from(dirty_minutes)) or 0
        engine.dispose()
        return counted, waiting

    return read
