# SPDX-License-Identifier: Apache-2.0
"""Several collectors on one PostgreSQL: who waits for whom, and that together they decide as one would."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from databases import stalled
from postgres_server import Server
from sqlalchemy import func, select
from starlette.testclient import TestClient

from kvflags.errors import ErrorCode, OperatorError, Unavailable
from kvflags_collector.app import create_app
from kvflags_collector.rollout import flags, ledger
from kvflags_collector.settings import Settings
from kvflags_collector.store import partitions
from kvflags_collector.store.control_tables import collector_keys, collectors, pins
from kvflags_collector.store.database import Database
from kvflags_collector.store.rollup_tables import dirty_minutes
from kvflags_collector.store.rollups import roll
from kvflags_collector.store.spans import insert_resources, insert_spans, mark_minutes
from kvflags_collector.store.telemetry_tables import spans

NOW = 1_800_000_000_000_000
DAY = 1_798_891_200 // 86_400
FACTS = {"vllm": "0.32.0", "model_class": "gqa", "kv_heads_per_rank": 4, "connector": "NixlConnector"}


@pytest.fixture
def two(on_postgresql):
    url = on_postgresql.new()
    both = Database(url), Database(url)
    yield both
    for db in both:
        db.close()
    on_postgresql.drop(url)


def _register(db: Database, name: str, deployment: str) -> dict[str, object]:
    body = {"registration_id": name, "deployment": deployment, "generation": "g", "role": "prefill"}
    body |= {"features": ["cross_layer_blocks"], "facts": FACTS}
    with db.write(deployment=deployment) as conn:
        decision: dict[str, object] = ledger.register(conn, body, NOW, None)["decisions"][0]
    return decision


def _create(db: Database) -> None:
    with db.write() as conn:
        given = {"key": "k", "feature": "cross_layer_blocks", "baseline_s": 0, "quiet_s": 0}
        flags.create(conn, **given, author="ann", reason="try", now=NOW)


def _waits(db: Database, **scope: str) -> bool:
    try:
        with db.write(**scope, wait_s=0.05):
            return False
    except Unavailable as error:
        return error.code == ErrorCode.DATABASE_BUSY


def test_deployments_do_not_meet_and_one_waits_for_itself_and_for_the_fleet(two):
    one, other = two
    with one.write(deployment="a"):
        assert not _waits(other, deployment="b")
        assert _waits(other, deployment="a")
        assert _waits(other)
    with one.write():
        assert _waits(other, deployment="b")
        assert _waits(other)
        with other.append(wait_s=0.05):
            pass
    assert not _waits(other)


def test_engines_that_register_with_both_at_once_get_one_pin_and_one_key(two):
    _create(two[0])
    gate = threading.Barrier(12)

    def start(number: int) -> dict[str, object]:
        gate.wait()
        return _register(two[number % 2], f"r{number}", f"c/ns/{number % 3}")

    with ThreadPoolExecutor(12) as pool:
        told = list(pool.map(start, range(12)))
    assert {decision["epoch"] for decision in told} == {1}
    with two[0].read() as conn:
        assert conn.scalar(select(func.count()).select_from(pins)) == 3
        assert conn.scalar(select(func.count()).select_from(collector_keys)) == 1
        assert conn.scalar(select(func.count()).select_from(collectors)) == 1


def test_a_reader_sees_one_state_and_may_not_write(two):
    one, other = two
    with one.read() as conn:
        count = select(func.count()).select_from(collectors)
        assert conn.scalar(count) == 0
        with other.write() as writing:
            writing.execute(collectors.insert().values(id="c", alive_us=1))
        assert conn.scalar(count) == 0
    with pytest.raises(Exception, match="read-only"), one.read() as conn:
        conn.execute(collectors.insert().values(id="d", alive_us=1))


def _row(number: int, day: int = DAY) -> tuple[object, ...]:
    values = dict.fromkeys(("name", "arm", "deployment", "generation", "engine_id", "backend"), "")
    values |= {"start_ns": day * partitions.DAY_NS + number, "trace_id": number.to_bytes(16, "big")}
    values |= {"span_id": b"s" * 8, "end_ns": 0, "kind": 3, "status": 0, "epoch": 0, "resource": b"r", "received_us": 0}
    return tuple(values.get(column.name) for column in spans.columns)


def test_the_same_spans_stored_by_both_at_once_are_there_once(two):
    rows = [_row(number, DAY + number % 2) for number in range(500)]

    def store(db: Database, turned: bool) -> None:
        for _ in range(5):
            with db.append() as conn:
                insert_resources(conn, {(bytes([n]), "{}") for n in range(20)}, NOW)
                insert_spans(conn, rows[::-1] if turned else rows)
                mark_minutes(conn, {(minute, "a") for minute in range(50)}, [])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(store, two, (False, True)))
    with two[0].read() as conn:
        assert conn.scalar(select(func.count()).select_from(spans)) == 500
        assert conn.scalar(select(func.count()).select_from(dirty_minutes)) == 50
        assert partitions.days(conn) == [DAY, DAY + 1]
        total = conn.scalar(select(func.sum(spans.c.end_ns)))
    assert (total, type(total)) == (0, int)


def test_a_day_is_made_while_somebody_reads_the_others_and_dropped_when_nobody_does(two):
    one, other = two
    with one.append() as conn:
        insert_spans(conn, [_row(1)])
    with other.read() as reading:
        assert reading.scalar(select(func.count()).select_from(spans)) == 1
        with one.append(wait_s=0.05) as conn:
            insert_spans(conn, [_row(1, DAY + 1)])
        with pytest.raises(Unavailable), one.append(wait_s=0.05) as conn:
            partitions.drop(conn, DAY)
    with one.append(wait_s=0.05) as conn:
        partitions.drop(conn, DAY)
        assert conn.scalars(select(spans.c.start_ns)).all() == [(DAY + 1) * partitions.DAY_NS + 1]


def _waiting(db: Database) -> int:
    """Sessions that wait for a lock."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with db.read() as conn:
        return int(conn.exec_driver_sql(asked).scalar_one())


@pytest.mark.parametrize("first", ["early", "late"])
def test_ranks_that_two_store_at_once_are_one_transfer_whoever_commits_first(two, raw_on, first):
    one, other = (raw_on(db) for db in two)
    failed = {"status": 2, "error_type": "transfer_failed"}
    rows = [one.ranked(0, at=60 * 10**9 - 1, **failed), one.ranked(1, at=60 * 10**9 + 5, **failed)]
    mine, theirs = rows if first == "early" else rows[::-1]
    with one.db.append() as conn:
        # Else who comes second waits for its day to be made.
        partitions.ensure(conn, {one.noon_ns // partitions.DAY_NS})
    with ThreadPoolExecutor(1) as pool:
        with one.db.append() as conn:
            one.write(conn, mine)
            storing = pool.submit(other.store, theirs)
            while not (storing.done() or _waiting(other.db)):
                time.sleep(0.01)
            roll(other.db, other.settled_us)
        storing.result()
    roll(other.db, other.settled_us)
    found = other.rows()
    other.clear()
    other.store(*rows)
    roll(other.db, other.settled_us)
    assert found == other.rows()
    assert [(row["minute_us"], row["transfers"]) for row in found] == [(other.noon_us, 1)]


def test_a_stalled_database_is_told_in_time(two):
    with stalled(two[0]), pytest.raises(Unavailable), two[1].append(wait_s=0.05) as conn:
        insert_spans(conn, [_row(1)])


def test_a_server_that_is_killed_keeps_what_was_committed_and_is_found_again(on_postgresql):
    server = Server(durable=True)
    try:
        server.execute("CREATE DATABASE kvflags")
        db = Database(server.url("kvflags"), upgrade=True)
        with db.append() as conn:
            assert conn.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
            insert_spans(conn, [_row(number) for number in range(1, 100)])
        server.kill()
        with pytest.raises(Unavailable), db.append():
            pass
        server.start()
        with db.read() as conn:
            assert conn.scalar(select(func.count()).select_from(spans)) == 99
        db.close()
    finally:
        server.stop()


def test_a_role_that_would_not_sync_commits_is_made_to(on_postgresql):
    url = on_postgresql.new()
    relaxed = f"{url}&options=-csynchronous_commit%3Doff"
    db = Database(relaxed)
    with db.append() as conn:
        assert conn.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
    db.close()
    on_postgresql.drop(url)


def test_no_server_is_one_clear_error(tmp_path):
    with pytest.raises(OperatorError, match="cannot open the database: connection"):
        Database(f"postgresql://kvflags@/kvflags?host={tmp_path}", upgrade=True)


def test_handing_a_decision_out_waits_for_its_own_deployment_only(two):
    _create(two[0])
    _register(two[0], "r", "c/ns/a")
    app = create_app(Settings(db=two[1].url), two[1], clock=lambda: NOW)
    ask, body = TestClient(app, "http://127.0.0.1"), {"deployment": "c/ns/a", "generation": "g"}
    # Its threads do not run: none of them asks for the fleet's lock meanwhile.
    with two[0].write(deployment="c/ns/b"):
        assert ask.post("/api/v1/flags/k/decide", json=body, headers={"Idempotency-Key": "1"}).status_code == 200
    ask.close()
