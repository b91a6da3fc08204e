# SPDX-License-Identifier: Apache-2.0
"""From a database URL to the engine and the locks of its kind. What differs between the kinds is in their modules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from sqlalchemy import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError

from kvflags.errors import OperatorError, UsageError
from kvflags_collector.store import postgresql, sqlite

__all__ = ["engine_for", "exclusive", "is_new", "opened", "reading", "shown", "vacuum", "writing"]

_SQLITE = frozenset({"sqlite", "sqlite+pysqlite"})
_POSTGRESQL = frozenset({"postgresql", "postgresql+psycopg"})


def engine_for(url: str) -> Engine:
    """An engine for this URL; opens nothing yet. UsageError for a URL that is not one of ours."""
    parsed = _parsed(url)
    # 16 readers: as many pages and reports at once as two cores can serve; more wait for a connection, not for a lock.
    kind = sqlite if parsed.drivername in _SQLITE else postgresql
    engine: Engine = kind.engine_for(
        parsed, pool_size=16, max_overflow=16, json_serializer=_compact, json_deserializer=_plain
    )
    return engine


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    """An engine for this URL, closed at the end."""
    engine = engine_for(url)
    try:
        yield engine
    finally:
        engine.dispose()


def exclusive(url: str) -> AbstractContextManager[None]:
    """Hold an SQLite database for this process; OperatorError where another one does. PostgreSQL is for many."""
    parsed = _parsed(url)
    return sqlite.exclusive(parsed) if parsed.drivername in _SQLITE else nullcontext()


def is_new(engine: Engine) -> bool:
    """Whether there is no database yet, or one without tables; OperatorError where neither can be told."""
    if engine.dialect.name == "sqlite" and not sqlite.exists(engine):
        return True
    try:
        with engine.connect() as conn:
            return not engine.dialect.get_table_names(conn)
    except DatabaseError as error:
        raise OperatorError(
            f"cannot open the database: {str(error.orig).strip()}", hint="check the address given to --db"
        ) from error


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that sees one state of the database throughout."""
    with engine.connect() as conn:
        if engine.dialect.name == "postgresql":
            conn.execution_options(**postgresql.SNAPSHOT)
        with conn.begin():
            yield conn


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes: on SQLite it holds the write lock from the start, on PostgreSQL see `locks`."""
    with engine.connect() as conn:
        conn.execution_options(**{sqlite.WRITE: True})
        with conn.begin():
            yield conn


def vacuum(engine: Engine) -> tuple[int, int]:
    """Make the database as small as what is in it; bytes before and after. Blocks; an SQLite file must be held.

    OperatorError where the disk has no room for it.
    """
    kind = sqlite if engine.dialect.name == "sqlite" else postgresql
    before = kind.size(engine)
    kind.vacuum(engine)
    return before, kind.size(engine)


def shown(url: str) -> str:
    """The URL without its password, as people and logs may see it."""
    return _parsed(url).render_as_string(hide_password=True)


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        # What was given is not shown: it may be a URL with a slip and a password.
        raise UsageError(
            f"{url!r} is not a database URL" if "@" not in url else "this is not a database URL",
            hint="for example --db sqlite:///kvflags.db",
        ) from error
    if parsed.drivername in _POSTGRESQL:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in _SQLITE:
        raise UsageError(
            f"no support for {parsed.drivername}", hint="use --db sqlite:///kvflags.db, or postgresql://user@host/db"
        )
    if not parsed.database or parsed.database == ":memory:":
        raise UsageError("the database must be a file", hint="for example --db sqlite:///kvflags.db")
    return parsed


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _plain(text: str | bytes) -> object:
    # What most roll-ups say of errors; parsing it would take a sixth of a report's time.
    return {} if text in {"{}", b"{}"} else json.loads(text)
