# SPDX-License-Identifier: Apache-2.0
"""A thread that works in a role, again and again, for as long as this process has it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from kvflags.errors import KvflagsError
from kvflags_collector.logs import Seldom
from kvflags_collector.store.database import Database
from kvflags_collector.store.roles import LEASE_US, Role, Superseded, Term, holder_name, release, take

__all__ = ["Worker"]

_log = logging.getLogger(__name__)

# One pass in the role; returns for how many seconds to rest, None for the worker's own interval.
Work = Callable[[Term], float | None]


class Worker:
    """Takes `role` whenever it is free, and does `work` every `every_s` seconds while it has it.

    Any number of processes may run one each: only one of them works. `clock` gives microseconds, UTC. `holder` names
    the process; workers of one process may share it. Close it before the database.
    """

    def __init__(
        self,
        db: Database,
        role: Role,
        work: Work,
        *,
        clock: Callable[[], int],
        holder: str | None = None,
        every_s: float = 1.0,
    ) -> None:
        self._db, self._role, self._work = db, role, work
        self._clock, self._holder, self._every_s = clock, holder or holder_name(db), every_s
        self._term: Term | None = None
        self._taken_s = 0.0
        self._seldom = Seldom(_log)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kvflags-{role}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs, in the role or waiting for it."""
        return self._thread.is_alive() and not self._stop.is_set()

    def close(self) -> None:
        """Stop after the pass at hand and leave the role to others."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._leave()

    def once(self) -> float:
        """One pass, if the role is ours or free; for how many seconds to rest after it."""
        try:
            term = self._in_role()
            rest = self._work(term) if term else None
        except Superseded as news:
            self._term, rest = None, None
            _log.warning("%s; waiting for it to be free", news)
        except KvflagsError as error:
            # The database cannot answer now; the next pass does the same work.
            rest = None
            self._seldom.say(logging.WARNING, "%s put off: %s", self._role, error)
        except Exception:  # noqa: BLE001 (see below)
            # Without its pass no epoch ends and nothing is rolled up, so whatever it was, the thread outlives it.
            rest = None
            _log.exception("%s failed", self._role)
        return self._every_s if rest is None else rest

    def _run(self) -> None:
        rest = self._every_s
        while not self._stop.wait(rest):
            rest = self.once()

    def _in_role(self) -> Term | None:
        """The term: the present one while it is fresh, so that idle passes write nothing."""
        if self._term is None:
            self._term = take(self._db, self._role, self._holder, self._clock)
            self._taken_s = time.monotonic()
        elif time.monotonic() - self._taken_s > LEASE_US / 3e6:
            with self._term.write():
                self._taken_s = time.monotonic()
        return self._term

    def _leave(self) -> None:
        if self._term is None:
            return
        try:
            release(self._term)
        except KvflagsError as error:
            _log.warning("%s not released, others wait for its lease to end: %s", self._role, error)
        self._term = None
