# SPDX-License-Identifier: Apache-2.0
"""The one thread that writes spans: many requests in one commit, each acknowledged after it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, IntegrityError, InterfaceError

from kvflags_collector.ingest.group_commit import GroupCommit
from kvflags_collector.ingest.limits import Refused
from kvflags_collector.ingest.spans.decode import Decoded, Mismatch
from kvflags_collector.rollout.mixed import on_handshake_failure
from kvflags_collector.store.batches import forget, known, remember
from kvflags_collector.store.bulk import Bulk
from kvflags_collector.store.database import Database
from kvflags_collector.store.spans import insert_all, insert_resources, mark_minutes

__all__ = ["Writer"]

T = TypeVar("T")

log = logging.getLogger(__name__)

# Requests share a commit until together they have this many rows (about 50 ms of writing). A transaction takes at most
# twice that, also of a single giant request: registrations want the same lock, and every acknowledgement waits this
# long.
_GROUP_ROWS = 4096

_FORGET_EVERY_US = 60 * 10**6

# (conn, deployment, generation, epoch, local engine, remote engine, now in microseconds)
OnMismatch = Callable[[Connection, str, str, int, str, str, int], None]
# What the request itself is to blame for: it would fail for ever, so its client must not try again.
_BAD_DATA = (DataError, IntegrityError, InterfaceError, OverflowError)


class Writer(GroupCommit[Decoded]):
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
        super().__init__("writer", "spans", _GROUP_ROWS)
        self._db = db
        self._on_mismatch = on_mismatch
        self._clock = clock
        # Requests that were stored before; counted by this thread, read by any.
        self.duplicates = 0
        self._forget_us = 0

    def _size(self, decoded: Decoded) -> int:
        return len(decoded.rows)

    def _refusal(self, error: Exception) -> Refused:
        if isinstance(error, _BAD_DATA):
            return Refused(400, f"the spans cannot be stored: {error}")
        return super()._refusal(error)

    def _stored(self, requests: list[Decoded]) -> None:
        if mismatches := {mismatch for decoded in requests for mismatch in decoded.mismatches}:
            self._tell(mismatches)
        self._forget()

    def _store(self, requests: list[Decoded]) -> None:
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
        now_us = self._clock() // 1000
        with self._db.append() as conn:
            seen = known(conn, {request.digest for request in requests})
            fresh = {request.digest: request for request in requests if request.digest not in seen}
            stored = list(fresh.values())
            self.duplicates += len(requests) - len(stored)
            insert_resources(conn, {pair for request in stored for pair in request.resources.items()}, now_us)
            insert_all(conn, (Bulk(one.rows, one.names, one.constants) for one in stored))
            mark_minutes(conn, _union(r.minutes for r in stored), _union(r.ranked for r in stored))
            remember(conn, fresh.keys() - {b""}, now_us)

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
