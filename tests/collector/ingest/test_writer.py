# SPDX-License-Identifier: Apache-2.0
"""Acknowledged means committed: whatever fails beside it, and even when the process is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from sqlalchemy import func, select

from kvflags_collector.ingest.limits import Refused
from kvflags_collector.ingest.spans.decode import Decoded, decode
from kvflags_collector.ingest.writer import Writer
from kvflags_collector.store.batches import REMEMBERED_US, known, remember
from kvflags_collector.store.rollup_tables import dirty_minutes
from kvflags_collector.store.telemetry_tables import ingest_batches, resources, spans


def _count(db, table=spans) -> int:
    with db.read() as conn:
        return conn.scalar(select(func.count()).select_from(table)) or 0


async def _send(writer: Writer, request: Decoded) -> None:
    assert await writer.submit(lambda: request) is request


def _submit(writer: Writer, *requests: Decoded) -> list[BaseException | None]:
    """All at once, from a loop of their own; what each was answered."""

    async def together() -> list[BaseException | None]:
        return await asyncio.gather(*(_send(writer, request) for request in requests), return_exceptions=True)

    return asyncio.run(together())


def test_spans_resources_and_dirty_minutes_are_committed_together(db, writer, request_of, noon):
    request = decode(request_of({}, {}, resource={"kvflags.deployment": "c/ns/a"}).SerializeToString(), noon)
    assert _submit(writer, request) == [None]
    with db.read() as conn:
        assert conn.execute(select(resources.c.attributes)).scalars().all() == [{"kvflags.deployment": "c/ns/a"}]
        dirty = conn.execute(
            select(dirty_minutes.c.minute_us, dirty_minutes.c.deployment, dirty_minutes.c.due_us)
        ).all()
    assert (dirty, _count(db)) == ([(noon // 1000, "c/ns/a", 0)], 2)


def test_a_request_that_cannot_be_stored_costs_itself_only(db, writer, request_of, noon):
    def request(number: int) -> Decoded:
        return decode(request_of({"span_id": bytes([number]) * 8}).SerializeToString(), noon)

    bad = request(2)
    end = bad.names.index("end_ns")
    bad.rows[0] = (*bad.rows[0][:end], None, *bad.rows[0][end + 1 :])
    first, second, third = _submit(writer, request(1), bad, request(3))
    assert (first, third, _count(db)) == (None, None, 2)
    assert isinstance(second, Refused)
    assert second.status == 400


def test_a_giant_request_is_written_whole(db, writer, request_of, noon):
    request = decode(request_of({}).SerializeToString(), noon)
    [row] = request.rows
    request.rows = [(row[0] + n, *row[1:]) for n in range(20_000)]
    assert (_submit(writer, request), _count(db)) == ([None], 20_000)


def test_a_database_that_cannot_answer_is_503_and_the_writer_goes_on(db, writer, request_of, noon, caplog):
    request = decode(request_of({}).SerializeToString(), noon)
    with db.write() as conn:
        conn.exec_driver_sql("ALTER TABLE resources RENAME TO elsewhere")
    [answer] = _submit(writer, request)
    assert isinstance(answer, Refused)
    assert (answer.status, answer.message) == (503, "the spans could not be stored: try again")
    with db.write() as conn:
        conn.exec_driver_sql("ALTER TABLE elsewhere RENAME TO resources")
    assert (_submit(writer, request), _count(db)) == ([None], 1)
    assert "could not store spans" in caplog.text


def test_failed_handshakes_are_told_after_the_commit(db, writer, mismatches, request_of, noon):
    resource = {"kvflags.deployment": "c/ns/a", "kvflags.generation": "r1", "kvflags.epoch": 1, "kvflags.engine": "d"}
    span = {"attributes": {"kvflags.layout.mismatch": True, "kvflags.remote.engine": "p"}}
    assert _submit(writer, decode(request_of(span, span, resource=resource).SerializeToString(), noon)) == [None]
    writer.close()
    assert mismatches == [("c/ns/a", "r1", 1, "d", "p", noon // 1000)]


def test_closing_stores_what_is_queued_and_refuses_the_rest(db, request_of, noon):
    writer = Writer(db)
    requests = [decode(request_of({"span_id": bytes([n]) * 8}).SerializeToString(), noon) for n in range(1, 40)]
    writer.start()

    async def submit_and_close() -> list[BaseException | None]:
        sent = [asyncio.ensure_future(_send(writer, request)) for request in requests]
        await asyncio.sleep(0)
        closing = threading.Thread(target=writer.close)
        closing.start()
        answers = await asyncio.gather(*sent, return_exceptions=True)
        await asyncio.to_thread(closing.join)
        return answers

    assert (asyncio.run(submit_and_close()), _count(db)) == ([None] * 39, 39)
    [late] = _submit(writer, requests[0])
    assert isinstance(late, Refused)
    assert not writer.alive


def test_an_idle_writer_closes_even_if_never_started(db):
    Writer(db).close()


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_the_official_exporter_delivers(serve, db, compression):
    client = serve(clock=time.time_ns)
    exporter = OTLPSpanExporter(endpoint=f"{client.base_url}/v1/traces", compression=compression)
    provider = TracerProvider(resource=Resource({"kvflags.deployment": "c/ns/a"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("kvflags")
    for number in range(1000):
        tracer.start_span("kv.transfer", attributes={"kvflags.transfer.bytes": number}).end()
    provider.shutdown()
    with db.read() as conn:
        found = conn.execute(select(func.count(), func.sum(spans.c.bytes)).where(spans.c.deployment == "c/ns/a")).one()
    assert tuple(found) == (1000, 499_500)


_COLLECTOR = """
    import sys, time, uvicorn
    from starlette.applications import Starlette
    from kvflags_collector.ingest.http import routes
    from kvflags_collector.ingest.keeper import Keeper
    from kvflags_collector.ingest.receiver import Receiver
    from kvflags_collector.ingest.writer import Writer
    from kvflags_collector.store.database import Database

    db = Database(sys.argv[1], upgrade=True)
    writer = Writer(db)
    writer.start()
    app = Starlette(routes=routes(Receiver(writer, Keeper(db), clock=lambda: int(sys.argv[2]))))
    uvicorn.run(app, fd=int(sys.argv[3]), log_level="error")
"""


def test_a_killed_collector_has_every_span_it_acknowledged(tmp_path: Path, request_of: Any, noon: int):
    listener = socket.create_server(("127.0.0.1", 0))
    path, program = tmp_path / "kvflags.db", textwrap.dedent(_COLLECTOR)
    command = [sys.executable, "-c", program, f"sqlite:///{path}", str(noon), str(listener.fileno())]
    collector = subprocess.Popen(command, pass_fds=[listener.fileno()])
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces"
    acknowledged: set[bytes] = set()

    def send(sender: int) -> None:
        with httpx.Client(timeout=30) as client:
            for batch in range(10_000):
                ids = [(sender << 32 | batch << 8 | n + 1).to_bytes(8, "big") for n in range(32)]
                body = request_of(*({"span_id": span_id} for span_id in ids)).SerializeToString()
                try:
                    answer = client.post(address, content=body, headers={"Content-Type": "application/x-protobuf"})
                except httpx.HTTPError:
                    return
                assert answer.status_code == 200
                acknowledged.update(ids)
                if len(acknowledged) > 5000:
                    os.kill(collector.pid, signal.SIGKILL)

    senders = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
    for thread in senders:
        thread.start()
    for thread in senders:
        thread.join()
    assert collector.wait() == -signal.SIGKILL
    listener.close()
    with sqlite3.connect(path) as conn:
        stored = {row[0] for row in conn.execute("SELECT span_id FROM spans")}
    conn.close()
    assert len(acknowledged) > 5000
    assert acknowledged <= stored


def test_a_request_sent_again_is_stored_once_and_known_at_once(db, writer, request_of, noon):
    body = request_of({}, {}).SerializeToString()
    assert _submit(writer, decode(body, noon), decode(body, noon)) == [None, None]
    with db.write() as conn:
        conn.execute(dirty_minutes.delete())
    assert _submit(writer, decode(body, noon)) == [None]
    assert (_count(db), _count(db, ingest_batches), _count(db, dirty_minutes)) == (2, 1, 0)


def test_spans_in_another_batch_are_stored_once(db, writer, request_of, noon):
    one, two = (request_of(*[{}] * number).SerializeToString() for number in (3, 5))
    assert _submit(writer, decode(one, noon), decode(two, noon)) == [None, None]
    assert (_count(db), _count(db, ingest_batches)) == (5, 2)


def test_a_request_that_failed_is_not_known(db, writer, request_of, noon):
    request = decode(request_of({}).SerializeToString(), noon)
    [row] = request.rows
    request.rows = [(None, *row[1:])]
    [refused] = _submit(writer, request)
    assert isinstance(refused, Refused)
    request.rows = [row]
    assert (_submit(writer, request), _count(db)) == ([None], 1)


def test_old_requests_are_forgotten(db, writer, request_of, noon):
    with db.write() as conn:
        remember(conn, [b"o" * 16], noon // 1000 - REMEMBERED_US - 1)
        remember(conn, [b"n" * 16], noon // 1000 - REMEMBERED_US)
    assert _submit(writer, decode(request_of({}).SerializeToString(), noon)) == [None]
    writer.close()
    with db.read() as conn:
        assert b"o" * 16 not in known(conn, [b"o" * 16, b"n" * 16])
        assert b"n" * 16 in known(conn, [b"n" * 16])


@pytest.mark.parametrize("number", [1, 200])
def test_quotes_in_a_label_are_text(db, writer, request_of, noon, number):
    label = "a'); DROP TABLE spans; --\"?:x\N{SNOWMAN}"
    request = request_of(*[{}] * number, resource={"kvflags.deployment": label})
    assert _submit(writer, decode(request.SerializeToString(), noon)) == [None]
    with db.read() as conn:
        assert conn.scalars(select(spans.c.deployment)).all() == [label] * number


def test_others_get_their_turn_while_the_writer_has_much_to_do(db, writer, request_of, noon):
    request = decode(request_of({}).SerializeToString(), noon)
    [row] = request.rows
    request.rows = [(row[0] + n, *row[1:]) for n in range(100_000)]
    stored, turns = threading.Event(), []

    def ledger() -> None:
        while not stored.is_set():
            with db.write():
                turns.append(time.monotonic())

    other = threading.Thread(target=ledger)
    other.start()
    try:
        assert _submit(writer, request) == [None]
    finally:
        stored.set()
        other.join()
    # The request takes 25 commits; whoever waits for one of them comes next, or nearly so.
    assert (_count(db), len(turns) >= 5) == (100_000, True)
