# SPDX-License-Identifier: Apache-2.0
"""Evidence kept in memory, since over a thousand deployments and 90 days it takes seconds to read.

Whoever asks gets the last one at once, and where that took long to make, the next is made meanwhile. One is made at a
time for each flag, however many ask, and none within ten times the seconds that the last one took: looking on costs a
tenth of a core at most.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from kvflags.errors import KvflagsError
from kvflags_collector.rollout import flags
from kvflags_collector.store.database import Database
from kvflags_collector.web.views.rollout import Evidence, gather

__all__ = ["Kept"]

_log = logging.getLogger(__name__)

# An older one is never shown: whoever comes after a quiet night waits for a new one.
_OLDEST_S = 300.0
# Nobody notices such a wait, and a page that is up to date is worth it.
_QUICK_S = 0.3
_DUTY = 10


@dataclass(frozen=True, slots=True)
class _Made:
    evidence: Evidence
    revision: int
    at_s: float
    took_s: float


class Kept:
    """`clock` gives microseconds, UTC; `timer` seconds that only pass. Any thread may ask, the event loop's never."""

    def __init__(self, db: Database, clock: Callable[[], int], *, timer: Callable[[], float] = time.monotonic) -> None:
        self._db, self._clock, self._timer = db, clock, timer
        self._made: dict[str, _Made] = {}
        self._making: dict[str, Future[_Made]] = {}
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "kvflags-evidence")

    def start(self) -> None:
        """Make those of all flags, so that the first reader after a restart need not wait."""
        with self._db.read() as conn:
            keys = flags.keys(conn)
        for key in keys:
            self._begin(key)

    def close(self) -> None:
        """Wait for the one that is being made."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def evidence(self, key: str) -> Evidence:
        """At most 5 minutes old, and at most 10 times as old as it took to make. NotFound for an unknown flag."""
        with self._db.read() as conn:
            revision = flags.get(conn, key).revision
        made, now = self._made.get(key), self._timer()
        if made is None or now - made.at_s > _OLDEST_S:
            return self._begin(key).result().evidence
        if made.revision >= revision and now - made.at_s < _DUTY * made.took_s:
            return made.evidence
        next_one = self._begin(key)
        return next_one.result().evidence if made.took_s < _QUICK_S else made.evidence

    def _begin(self, key: str) -> Future[_Made]:
        """The one that is being made, or another."""
        with self._lock:
            making = self._making.get(key)
            if making is None or making.done():
                making = self._making[key] = self._thread.submit(self._make, key)
            return making

    def _make(self, key: str) -> _Made:
        try:
            begun = self._timer()
            with self._db.read() as conn:
                revision = flags.get(conn, key).revision
            evidence = gather(self._db, key, self._clock())
            made = self._made[key] = _Made(evidence, revision, begun, self._timer() - begun)
        except KvflagsError as error:
            # Those who wait get it raised; where nobody does, the last one stays and this is all that is heard of it.
            _log.warning("the evidence on %s was not read: %s", key, error)
            raise
        return made
