# SPDX-License-Identifier: Apache-2.0
"""The one thread that writes what comes seldom: outcomes (an export a minute from each engine) and events.

As the writer of spans does, it takes all that has queued up into one commit and answers after it. It is another thread
because its transactions read before they write, and spans must not wait for that.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from queue import Empty, SimpleQueue
from typing import Protocol

from sqlalchemy import Connection

from kvflags.errors import Unavailable
from kvflags_collector.ingest.limits import Refused
from kvflags_collector.store.database import Database

__all__ = ["Keepable", "Keeper"]

log = logging.getLogger(__name__)

# Requests in one transaction: 64 engines' outcomes are about 20 ms of merging.
_GROUP = 64


class Keepable(Protocol):
    """A decoded request; false where it holds nothing. `rejected` grows by what `store` gives, once it is committed."""

    rejected: Counter[str]

    def __bool__(self) -> bool: ...

    def store(self, conn: Connection) -> Counter[str]:
        """Write it; safe to repeat. What could not be kept, by reason."""
        ...


Ticket = tuple[Keepable, "asyncio.Future[None]"]


class Keeper:
    """Stores what `outcomes` and `events` decoded. One per process; started and closed with the server."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._queue: SimpleQueue[Ticket | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="kvflags-keeper", daemon=True)
        # Held for an append only: nothing is queued behind the end mark, where nobody would answer it.
        self._gate = threading.Lock()
        self._closed = False

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
        """Whether requests are taken; `/readyz` asks."""
        return self._thread.is_alive() and not self._closed

    async def submit(self, item: Keepable) -> None:
        """Returns once it is committed; at once where there is nothing to store.

        Raises:
            Refused: 503 where it could not be stored now.
        """
        if not item:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._gate:
            if not self.alive:
                raise Refused(503, "the collector is stopping: try again")
            self._queue.put((item, done))
        await done

    def _run(self) -> None:
        while True:
            group = self._next_group()
            self._settle([ticket for ticket in group if ticket])
            if group[-1] is None:
                return

    def _next_group(self) -> list[Ticket | None]:
        """What is queued, up to the size of a group; the end mark, None, is always its last."""
        group = [self._queue.get()]
        while group[-1] is not None and len(group) < _GROUP:
            try:
                group.append(self._queue.get_nowait())
            except Empty:
                break
        return group

    def _settle(self, group: list[Ticket]) -> None:
        """Store and answer. A group that fails is tried again one by one: a bad request costs itself only."""
        problem = None
        try:
            self._store([item for item, _ in group])
        except Unavailable as unavailable:
            # It was waited for already, and one by one each would wait as long again.
            problem = Refused(503, f"{unavailable.message}: try again")
        except Exception:
            # Whatever it is, the thread must outlive it.
            log.exception("could not store outcomes or events")
            problem = Refused(503, "this could not be stored: try again")
            if len(group) > 1:
                for ticket in group:
                    self._settle([ticket])
                return
        for _, done in group:
            done.get_loop().call_soon_threadsafe(_answer, done, problem)

    def _store(self, items: list[Keepable]) -> None:
        if not items:
            return
        with self._db.append() as conn:
            kept = [item.store(conn) for item in items]
        for item, refused in zip(items, kept, strict=True):
            item.rejected.update(refused)


def _answer(done: asyncio.Future[None], problem: Refused | None) -> None:
    """On the loop. The request may have been cancelled meanwhile, with its client gone."""
    if done.done():
        return
    if problem:
        done.set_exception(problem)
    else:
        done.set_result(None)
