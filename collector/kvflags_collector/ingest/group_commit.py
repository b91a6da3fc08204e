# SPDX-License-Identifier: Apache-2.0
"""A thread that decodes and stores requests: all that have queued up in one commit, each answered after it.

A commit costs an fsync, so those that came meanwhile share the next one. `submit` is called on the server's event loop;
everything else runs in the thread, which also takes the database's write lock, so that the loop never waits for it.

One thread for both, since threads that decode while another writes take Python's lock from each other at every row:
together they need twice the CPU, and are slower than one that does first the one and then the other.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeVar

from kvflags.errors import Unavailable
from kvflags_collector.ingest.limits import Refused
from kvflags_collector.logs import Seldom

__all__ = ["GroupCommit"]

Item = TypeVar("Item")

log = logging.getLogger(__name__)

# A group ends by then, whatever its size: requests that hold nothing good, sent without end, must not keep it open.
_GATHER_S = 0.1


class _Ticket(NamedTuple, Generic[Item]):
    """make: gives what is to be stored. done: told it once that is committed."""

    make: Callable[[], Item]
    done: asyncio.Future[Item]


class _Made(NamedTuple, Generic[Item]):
    item: Item
    done: asyncio.Future[Item]


class GroupCommit(ABC, Generic[Item]):
    """One thread and its queue; started and closed with the server.

    what: it stores, in the plural. most: a group ends once it is of that size.
    """

    def __init__(self, name: str, what: str, most: int) -> None:
        self._what, self._most = what, most
        self._seldom = Seldom(log)
        self._queue: SimpleQueue[_Ticket[Item] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"kvflags-{name}", daemon=True)
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

    async def submit(self, make: Callable[[], Item]) -> Item:
        """What `make` gives, called in the thread, once it is committed; at once where there is nothing to store.

        Raises:
            Refused: 503 where it could not be stored now, 400 where it never can; or whatever `make` raises.
        """
        done: asyncio.Future[Item] = asyncio.get_running_loop().create_future()
        with self._gate:
            if not self.alive:
                raise Refused(503, "the collector is stopping: try again")
            self._queue.put(_Ticket(make, done))
        return await done

    @abstractmethod
    def _store(self, items: list[Item]) -> None:
        """Write and commit; safe to repeat."""

    def _refusal(self, error: Exception) -> Refused:
        """What requests are told that failed: one on its own, or all of a group for which there was no database."""
        if isinstance(error, Unavailable):
            self._seldom.say(logging.ERROR, "could not store %s: %s", self._what, error.message)
        else:
            log.error("could not store %s", self._what, exc_info=error)
        return Refused(503, f"the {self._what} could not be stored: try again")

    @abstractmethod
    def _size(self, item: Item) -> int:
        """How much it adds to its group; 0 for nothing to store."""

    def _stored(self, items: list[Item]) -> None:
        """After the answers to a group that was committed. Must not raise."""

    def _run(self) -> None:
        ended = False
        while not ended:
            group, ended = self._next_group()
            if group:
                self._settle(group)

    def _next_group(self) -> tuple[list[_Made[Item]], bool]:
        """What is queued, up to the size of a group; and whether the end mark came."""
        group: list[_Made[Item]] = []
        ticket, size = self._queue.get(), 0
        until = time.monotonic() + _GATHER_S
        while ticket is not None:
            size += self._add(ticket, group)
            if size >= self._most or time.monotonic() > until:
                return group, False
            try:
                ticket = self._queue.get_nowait()
            except Empty:
                return group, False
        return group, True

    def _add(self, ticket: _Ticket[Item], group: list[_Made[Item]]) -> int:
        """Make what it brings, for the group; its size. What cannot be made, or is nothing, is answered."""
        try:
            item = ticket.make()
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is that request's, and its answer tells it
            _tell(ticket.done, problem)
            return 0
        size = self._size(item)
        if size:
            group.append(_Made(item, ticket.done))
        else:
            _tell(ticket.done, item)
        return size

    def _settle(self, group: list[_Made[Item]]) -> None:
        """Store and answer. A group that fails is tried again one by one: a bad request costs itself only."""
        items = [item for item, _ in group]
        problem = None
        try:
            self._store(items)
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread must outlive it
            # A database that cannot answer was waited for already: one by one each would wait as long again.
            if len(group) > 1 and not isinstance(error, Unavailable):
                for made in group:
                    self._settle([made])
                return
            problem = self._refusal(error)
        for item, done in group:
            _tell(done, problem or item)
        if not problem:
            self._stored(items)


def _tell(done: asyncio.Future[Item], answer: Item | Exception) -> None:
    done.get_loop().call_soon_threadsafe(_answer, done, answer)


def _answer(done: asyncio.Future[Item], answer: Item | Exception) -> None:
    """On the loop. The request may have been cancelled meanwhile, with its client gone."""
    if done.done():
        return
    if isinstance(answer, Exception):
        done.set_exception(answer)
    else:
        done.set_result(answer)
