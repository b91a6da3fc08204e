# SPDX-License-Identifier: Apache-2.0
"""The database of one process: who may have it, how writes take turns, what a failure leaves behind."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest
from sqlalchemy import func, select

from kvflags.errors import ErrorCode, OperatorError, Unavailable, UsageError
from kvflags_collector.store.control_tables import collectors
from kvflags_collector.store.database import Database


@pytest.fixture
def file(tmp_path):
    """The URL of a file that is not there yet."""
    return f"sqlite:///{tmp_path}/kvflags.db"


def note(conn, name):
    conn.execute(collectors.insert().values(id=name, alive_us=0))


def names(db):
    with db.read() as conn:
        return list(conn.scalars(select(collectors.c.id).order_by(collectors.c.id)))


def test_what_was_written_is_read(db):
    with db.write() as conn:
        note(conn, "one")
    assert names(db) == ["one"]


def test_an_exception_rolls_everything_back(db):
    def fail():
        with db.write() as conn:
            note(conn, "one")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert names(db) == []


def test_the_pragmas_hold_on_every_connection(file):
    db = Database(file, upgrade=True)
    with db.read() as conn:
        found = {
            pragma: conn.exec_driver_sql(f"PRAGMA {pragma}").scalar()
            for pragma in ("journal_mode", "synchronous", "busy_timeout", "foreign_keys", "auto_vacuum")
        }
    # 2 is FULL, and incremental.
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,
        "busy_timeout": 10_000,
        "foreign_keys": 1,
        "auto_vacuum": 2,
    }
    db.close()


def test_a_read_sees_one_state_throughout(db):
    with db.read() as conn:
        count = select(func.count()).select_from(collectors)
        assert conn.scalar(count) == 0
        with db.write() as other:
            note(other, "one")
        assert conn.scalar(count) == 0
    assert names(db) == ["one"]


def test_writes_take_turns(db):
    def add(number):
        with db.write() as conn:
            count = conn.scalar(select(func.count()).select_from(collectors))
            time.sleep(0.001)
            note(conn, f"{count:03}")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(db) == [f"{number:03}" for number in range(20)]


def test_who_waits_too_long_is_told_so(db):
    with db.write():
        result = []

        def late():
            try:
                with db.write(wait_s=0.05):
                    result.append("in")
            except Unavailable as error:
                result.append(error.code)

        thread = threading.Thread(target=late)
        thread.start()
        thread.join()
    assert result == [ErrorCode.DATABASE_BUSY]
    with db.write(wait_s=0.05):
        pass


@pytest.mark.parametrize("kind", ["read", "write"])
def test_the_event_loop_never_blocks_on_it(db, kind):
    async def misuse():
        with getattr(db, kind)():
            pass

    with pytest.raises(RuntimeError, match="event loop"):
        asyncio.run(misuse())


def test_a_second_process_on_a_file_is_refused_at_once(file):
    db = Database(file, upgrade=True)
    again = "import sys; from kvflags_collector.store.database import Database; Database(sys.argv[1], upgrade=True)"
    began = time.monotonic()
    second = subprocess.run([sys.executable, "-c", again, file], capture_output=True, text=True, check=False)
    assert time.monotonic() - began < 20
    assert f"OperatorError: another kvflags process holds {file}" in second.stderr
    assert names(db) == []
    db.close()


def test_one_that_was_closed_can_be_opened_again(db, url):
    db.close()
    db.close()
    Database(url).close()


def test_one_whose_opening_failed_is_not_held(file):
    with pytest.raises(OperatorError):
        Database(file)
    Database(file, upgrade=True).close()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("kvflags.db", "is not a database URL"),
        ("sqlite://", "must be a file"),
        ("sqlite:///:memory:", "must be a file"),
        ("mysql://ann:secret@host/db", "no support for mysql"),
        ("ann:secret@host/db", "this is not a database URL"),
    ],
)
def test_a_url_that_is_not_ours_is_explained(given, says):
    with pytest.raises(UsageError, match=says) as error:
        Database(given)
    assert "sqlite:///kvflags.db" in error.value.hint
    assert "secret" not in error.value.message


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(OperatorError, match="No such file or directory"):
        Database(f"sqlite:///{tmp_path}/nowhere/kvflags.db", upgrade=True)


def test_a_file_that_is_no_database_is_left_alone(tmp_path, file):
    (tmp_path / "kvflags.db").write_text("a letter to my aunt, long enough to be looked at" * 20)
    before = (tmp_path / "kvflags.db").read_bytes()
    with pytest.raises(OperatorError, match="not a database"):
        Database(file, upgrade=True)
    assert (tmp_path / "kvflags.db").read_bytes() == before
