# SPDX-License-Identifier: Apache-2.0
"""The database of one collector process: who may write, when, and at which revision."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from kvflags.errors import ErrorCode, Unavailable
from kvflags_collector.store import locks
from kvflags_collector.store.connect import engine_for, exclusive, reading, writing
from kvflags_migrations import check_engine, upgrade_engine

__all__ = ["Database"]


class Database:
    """Read and write transactions on one database, until `close`.

    Any thread may use it, the event loop's never: every transaction blocks. Reads see the last commit and wait for
    nobody. An SQLite file is held by this process, and its writes are one at a time: who waits does so in the process,
    where it can be bounded. A PostgreSQL is shared with other collectors; who waits for whom is told in `locks`.
    """

    def __init__(self, url: str, *, upgrade: bool = False) -> None:
        """Take the database; with `upgrade` a new or older one is brought to our revision first.

        OperatorError: another process holds it, or it is at another revision.
        """
        self.url = url
        self.engine = engine_for(url)
        self._turn = threading.Lock() if self.engine.dialect.name == "sqlite" else None
        with ExitStack() as stack:
            stack.enter_context(exclusive(url))
            stack.callback(self.engine.dispose)
            if upgrade:
                upgrade_engine(self.engine)
            self.check_revision()
            self._held = stack.pop_all()

    def check_revision(self) -> None:
        """OperatorError `database_revision` unless the database is at the revision of this release."""
        check_engine(self.engine)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database throughout."""
        _refuse_on_event_loop()
        with _as_unavailable(), reading(self.engine) as conn:
            yield conn

    @contextmanager
    def write(self, *, deployment: str | None = None, wait_s: float = 10.0) -> Iterator[Connection]:
        """A transaction that writes to the ledger: about one deployment if named, else about any; rolled back on error.

        Unavailable (`database_busy`) when it is not our turn within `wait_s`.
        """
        with self.append(wait_s=wait_s) as conn:
            if deployment is None:
                locks.alone(conn)
            else:
                locks.for_deployment(conn, deployment)
            yield conn

    @contextmanager
    def append(self, *, wait_s: float = 10.0) -> Iterator[Connection]:
        """A transaction that writes telemetry, and the ledger not at all: spans, minutes, roll-ups.

        Unavailable (`database_busy`) when it is not our turn within `wait_s`.
        """
        _refuse_on_event_loop()
        with self._in_turn(wait_s), _as_unavailable(), writing(self.engine) as conn:
            locks.patiently(conn, wait_s)
            yield conn

    @contextmanager
    def _in_turn(self, wait_s: float) -> Iterator[None]:
        if self._turn is None:
            yield
        elif self._turn.acquire(timeout=max(wait_s, 0.0)):
            try:
                yield
            finally:
                self._turn.release()
        else:
            raise Unavailable("the database is busy", hint="try again in a moment", code=ErrorCode.DATABASE_BUSY)

    def close(self) -> None:
        """Give the database up; safe to repeat."""
        self._held.close()


@contextmanager
def _as_unavailable() -> Iterator[None]:
    """A database that cannot answer now (locked, full, gone) is one kind of error to everybody above."""
    try:
        yield
    except OperationalError as error:
        # PostgreSQL's are of several lines.
        message = f"the database cannot answer: {' '.join(str(error.orig).split())}"
        raise Unavailable(message, hint="see the collector's log", code=ErrorCode.DATABASE_BUSY) from error


def _refuse_on_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("a transaction blocks, so it must not run on the event loop")
