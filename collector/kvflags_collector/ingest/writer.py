# SPDX-License-Identifier: Apache-2.0
"""The one thread that writes spans: many requests in one commit, each acknowledged after it.

`submit` is called on the server's event loop; everything else runs in the writer's own thread, which also takes the
database's write lock, so that the loop never waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, IntegrityError, InterfaceError

from kvflags_collector.ingest.decode import Decoded, Mismatch
from kvflags_collector.ingest.limits import Refused
from kvflags_collector.rollout.mixed import on_handshake_failure
from kvflags_collector.store.batches import forget, known, remember
from kvflags_collector.store.database import Database
from kvflags_collector.store.spans import insert_resources, insert_spans, mark_minutes

__all__ = ["Writer"]

T = TypeVar("T")

log = logging.getLogger(__name__)

# A commit costs an fsync, so requests that queued up meanwhile share the next one, until together they have this many
# rows (about 50 ms of writing). A transaction takes at most twice that, also of a single giant request: registrations
# want the same lock, and every acknowledgement waits this long.
_GROUP_ROWS = 4096

_FORGET_EVERY_US = 60 * 10**6

# (conn, deployment, generation, epoch, local engine, remote engine, now in microseconds)
OnMismatch = Callable[[Connection, str, str, int, str, str, int], None]
Ticket = tuple[Decoded, "asyncio.Future[None]"]
# What the request itself is to blame for: it would fail for ever, so its client must not try again.
_BAD_DATA = (DataError, IntegrityError, InterfaceError, OverflowError)


class Writer:
    """Stores what `ingest.http` decoded. One per process; started and closed with the server.

    on_mismatch: told of each handshake that failed for the layout, in a transaction after the one that committed the
    spans.
    """

    def __init__(
        self,
        db: Database,
        *,
        on_mismatch: OnMismatch = on_handshake_failure,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._db = db
        self._on_mismatch = on_mismatch
        self._clock = clock
        self._queue: SimpleQueue[Ticket | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="kvflags-writer", daemon=True)
        # Held for an append only: nothing is queued behind the end mark, where nobody would answer it.
        self._gate = threading.Lock()
        self._closed = False
        # Requests that were stored before; counted by this thread, read by any.
        self.duplicates = 0
        self._forget_us = 0

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Store what is queued, then stop. Blocks until that is done; later submissions are refused."""
        with self._gate:
            self._closed = True
            self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether spans are taken; `/readyz` asks."""
        return self._thread.is_alive() and not self._closed

    async def submit(self, decoded: Decoded) -> None:
        """Returns once the rows are committed.

        Raises:
            Refused: 503 where they could not be stored now, 400 where they never can.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._gate:
            if not self.alive:
                raise Refused(503, "the collector is stopping: try again")
            self._queue.put((decoded, done))
        await done

    def _run(self) -> None:
        while tickets := self._next_group():
            self._settle([ticket for ticket in tickets if ticket])
            self._forget()
            if tickets[-1] is None:
                return

    def _next_group(self) -> list[Ticket | None]:
        """What is queued, up to the size of a group; the end mark, None, is always its last."""
        group: list[Ticket | None] = []
        ticket, rows = self._queue.get(), 0
        while True:
            group.append(ticket)
            rows += len(ticket[0].rows) if ticket else 0
            if ticket is None or rows >= _GROUP_ROWS:
                return group
            try:
                ticket = self._queue.get_nowait()
            except Empty:
                return group

    def _settle(self, group: list[Ticket]) -> None:
        """Store and answer. A group that fails is tried again request by request: a bad one costs itself only."""
        problem = self._store([decoded for decoded, _ in group])
        if problem and len(group) > 1:
            for ticket in group:
                self._settle([ticket])
            return
        for _, done in group:
            done.get_loop().call_soon_threadsafe(_answer, done, problem)
        mismatches = {mismatch for decoded, _ in group for mismatch in decoded.mismatches}
        if mismatches and not problem:
            self._tell(mismatches)

    def _store(self, requests: list[Decoded]) -> Refused | None:
        try:
            self._write(requests)
        except _BAD_DATA as problem:
            return Refused(400, f"the spans cannot be stored: {problem}")
        except Exception:
            # A full disk, a lost database: whatever it is, the thread must outlive it.
            log.exception("could not store spans")
            return Refused(503, "the spans could not be stored: try again")
        return None

    def _write(self, requests: list[Decoded]) -> None:
        """In one commit, but for what is giant: that takes several, and is remembered by its last."""
        last = []
        for request in requests:
            rest = request
            while len(rest.rows) > _GROUP_ROWS:
                first, rest = rest.split(_GROUP_ROWS)
                self._commit([first])
            last.append(rest)
        if last:
            self._commit(last)

    def _commit(self, requests: list[Decoded]) -> None:
        with self._db.append() as conn:
            seen = known(conn, {request.digest for request in requests})
            fresh = {request.digest: request for request in requests if request.digest not in seen}
            stored = list(fresh.values())
            self.duplicates += len(requests) - len(stored)
            insert_resources(conn, {pair for request in stored for pair in request.resources.items()})
            for request in stored:
                insert_spans(conn, request.rows, request.names, request.constants)
            mark_minutes(conn, _union(r.minutes for r in stored), _union(r.ranked for r in stored))
            remember(conn, fresh.keys() - {b""}, self._clock() // 1000)

    def _tell(self, mismatches: set[Mismatch]) -> None:
        # The spans are stored, and heartbeats show the same mixed generation: a failure here is nobody's.
        with _logged("could not note a failed handshake"):
            for mismatch in sorted(mismatches):
                with self._db.write(deployment=mismatch.deployment) as conn:
                    self._on_mismatch(conn, *mismatch, self._clock() // 1000)

    def _forget(self) -> None:
        now_us = self._clock() // 1000
        if now_us >= self._forget_us:
            self._forget_us = now_us + _FORGET_EVERY_US
            with _logged("could not forget old requests"), self._db.append() as conn:
                forget(conn, now_us)


@contextmanager
def _logged(failure: str) -> Iterator[None]:
    """For what follows an answer: the thread outlives its failure."""
    try:
        yield
    except Exception:
        log.exception(failure)


def _union(sets: Iterable[set[T]]) -> set[T]:
    return set().union(*sets)


def _answer(done: asyncio.Future[None], problem: Refused | None) -> None:
    """On the loop. The request may have been cancelled meanwhile, with its client gone."""
    if done.done():
        return
    if problem:
        done.set_exception(problem)
    else:
        done.set_result(None)
