# SPDX-License-Identifier: Apache-2.0
"""SQLite: one file, one process, one writer at a time. The only module that knows its pragmas and locks."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event

from kvflags.errors import ErrorCode, OperatorError

__all__ = ["WRITE", "engine_for", "exclusive", "exists", "size", "vacuum"]

# An execution option: a connection that carries it begins with the write lock taken, see `_begin`.
WRITE = "kvflags_write"

# auto_vacuum first: SQLite heeds it only while the file is empty, and retention gives pages back with it later.
# WAL lets pages and reports read while the writer commits. FULL syncs the log on every commit: what was acknowledged
# survives a power cut (NORMAL would lose the last commits). 10 s of busy_timeout outlasts a checkpoint by `sqlite3` or
# a backup that somebody runs beside us; our own writers wait on a lock of the process instead.
_PRAGMAS = (
    "PRAGMA auto_vacuum = INCREMENTAL",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA busy_timeout = 10000",
    "PRAGMA foreign_keys = ON",
)


def engine_for(url: URL, **options: Any) -> Engine:  # noqa: ANN401 - those of create_engine
    """An engine on this file; opens nothing yet."""
    engine = create_engine(url, **options)
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _begin)
    return engine


def exists(engine: Engine) -> bool:
    """Whether there is a file; connecting would create one."""
    return os.path.exists(engine.url.database or "")


def size(engine: Engine) -> int:
    """Bytes on disk, the write-ahead log included."""
    path = engine.url.database or ""
    return sum(os.path.getsize(name) for name in (path, f"{path}-wal") if os.path.exists(name))


def vacuum(engine: Engine) -> None:
    """Write the file anew, without the pages that lie free and in the order of its keys: about a second for 100 MB.

    OperatorError where the disk has no room for it (twice its size, for a while); the database is as it was then.
    """
    # Not in a transaction, and SQLAlchemy would begin one.
    with closing(engine.raw_connection()) as connection:
        cursor = connection.cursor()
        try:
            cursor.execute("VACUUM")
            cursor.execute("ANALYZE")
            # All of it is in the log by now.
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.OperationalError as error:
            raise OperatorError(
                f"cannot vacuum {engine.url.render_as_string()}: {error}",
                hint="it takes as much free disk as the database is large, twice",
            ) from error


@contextmanager
def exclusive(url: URL) -> Iterator[None]:
    """Hold the database for this process: a second one is refused with OperatorError, at once.

    The lock is on a file beside the database. On the database itself it would do harm: POSIX drops a process's locks on
    a file as soon as any descriptor of that file is closed, and SQLite relies on those.
    """
    path = f"{url.database}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise OperatorError(
            f"cannot open {path}: {error.strerror}", hint="give --db a folder you can write to"
        ) from error
    try:
        _lock(descriptor, url)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, url: URL) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise OperatorError(
            f"another kvflags process holds {url.render_as_string()}",
            hint="stop it, or give this one its own --db; PostgreSQL takes several collectors",
            code=ErrorCode.DATABASE_BUSY,
        ) from error


def _on_connect(connection: sqlite3.Connection, _: object) -> None:
    # The driver's own transaction handling begins too late and never IMMEDIATE; `_begin` replaces it.
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(pragma)


def _begin(conn: Connection) -> None:
    # A deferred transaction that reads and then writes fails at once when another wrote meanwhile; IMMEDIATE waits.
    conn.exec_driver_sql("BEGIN IMMEDIATE" if conn.get_execution_options().get(WRITE) else "BEGIN")
