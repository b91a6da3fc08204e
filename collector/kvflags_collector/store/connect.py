# SPDX-License-Identifier: Apache-2.0
"""From a database URL to an engine that keeps our promises. The only module that knows SQLite's pragmas and locks."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError

from kvflags.errors import ErrorCode, OperatorError, UsageError

__all__ = ["WRITE", "engine_for", "exclusive", "is_new"]

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


def engine_for(url: str) -> Engine:
    """An engine for this URL; opens nothing yet. UsageError for a URL that is not one of ours."""
    parsed = _parsed(url)
    # 16 readers: as many pages and reports at once as two cores can serve; more wait for a connection, not for a lock.
    engine = create_engine(parsed, pool_size=16, max_overflow=16, json_serializer=_compact, json_deserializer=_plain)
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _begin)
    return engine


@contextmanager
def exclusive(url: str) -> Iterator[None]:
    """Hold the database for this process: a second one is refused with OperatorError, at once.

    The lock is on a file beside the database. On the database itself it would do harm: POSIX drops a process's locks on
    a file as soon as any descriptor of that file is closed, and SQLite relies on those.
    """
    path = f"{_parsed(url).database}.lock"
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


def is_new(engine: Engine) -> bool:
    """Whether there is no database yet, or one without tables; OperatorError for any other file. Creates nothing."""
    if not os.path.exists(engine.url.database or ""):
        return True
    try:
        with engine.connect() as conn:
            return not engine.dialect.get_table_names(conn)
    except DatabaseError as error:
        raise OperatorError(f"cannot open the database: {error.orig}", hint="check the path given to --db") from error


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise UsageError(f"{url!r} is not a database URL", hint="for example --db sqlite:///kvflags.db") from error
    if parsed.drivername not in {"sqlite", "sqlite+pysqlite"}:
        raise UsageError(f"no support for {parsed.drivername} in this release", hint="use --db sqlite:///kvflags.db")
    if not parsed.database or parsed.database == ":memory:":
        raise UsageError("the database must be a file", hint="for example --db sqlite:///kvflags.db")
    return parsed


def _lock(descriptor: int, url: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise OperatorError(
            f"another kvflags process holds {url}",
            hint="stop it, or give this one its own --db",
            code=ErrorCode.DATABASE_BUSY,
        ) from error


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _plain(text: str) -> object:
    # What most roll-ups say of errors; parsing it would take a sixth of a report's time.
    return {} if text == "{}" else json.loads(text)


def _on_connect(connection: sqlite3.Connection, _: object) -> None:
    # The driver's own transaction handling begins too late and never IMMEDIATE; `_begin` replaces it.
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(pragma)


def _begin(conn: Connection) -> None:
    # A deferred transaction that reads and then writes fails at once when another wrote meanwhile; IMMEDIATE waits.
    conn.exec_driver_sql("BEGIN IMMEDIATE" if conn.get_execution_options().get(WRITE) else "BEGIN")
