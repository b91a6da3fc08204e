# SPDX-License-Identifier: Apache-2.0
"""The roll-ups: what is dirty is computed again from raw spans and replaced, so rolling twice or late changes nothing.

Spans are read and counted without any lock. Only the exchange of rows is a write transaction, and happens only if the
mark of the minute is still the one seen before the spans were read: rollers never undo each other, and ingest waits for
none of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from math import inf

from kvflags_collector.store.database import Database
from kvflags_collector.store.minutes import MINUTE_NS, Marks, due, exchange, oldest_dirty, ranks_of
from kvflags_collector.store.tally import tally
from kvflags_collector.store.transfers import Transfer, transfers

__all__ = ["CLOSES_AFTER_US", "Roller", "oldest_dirty", "roll"]

logger = logging.getLogger(__name__)

# A transfer whose ranks are not all here yet is left out for so long, and after that counted as incomplete.
CLOSES_AFTER_US = 600 * 10**6


def roll(db: Database, now_us: int, *, seconds: float = inf) -> bool:
    """Roll what is dirty and due, the oldest minute first; whether all of it was done within `seconds`.

    Called by the `Roller`, and by the report before it reads. Blocks; any number may run at once.
    """
    deadline = time.monotonic() + seconds
    with db.read() as conn:
        minutes = due(conn, now_us)
    for minute_us, marks in minutes:
        if time.monotonic() >= deadline:
            return False
        _roll_minute(db, minute_us, marks, now_us)
    return True


class Roller:
    """The thread that rolls each second, or less often while that costs a tenth of a core. Close it before the db."""

    def __init__(self, db: Database, *, clock: Callable[[], int] = time.time_ns, every_s: float = 1.0) -> None:
        self._db = db
        self._clock = clock
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvflags-roller", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends after the minute at hand."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            began = time.monotonic()
            done = self._pass()
            # The minute under way is counted anew on each pass, so passes get longer with its traffic: seldom, then.
            # But minutes that wait are each counted once, and the sooner the better.
            pause = max(self._every_s, 9 * (time.monotonic() - began)) if done else self._every_s

    def _pass(self) -> bool:
        try:
            # A second at a time, so that closing does not wait for long.
            return roll(self._db, self._clock() // 1000, seconds=1.0)
        except Exception:
            # The minutes stay dirty, so nothing is lost; the next pass tries again.
            logger.exception("could not roll up")
            return True


def _roll_minute(db: Database, minute_us: int, marks: Marks, now_us: int) -> None:
    with db.read() as conn:
        ranks = ranks_of(conn, minute_us, list(marks))
    owned = [transfer for transfer in transfers(ranks) if transfer.start_ns // MINUTE_NS == minute_us // 60_000_000]
    later = _reopened(owned, now_us)
    rows = tally(minute_us, (transfer for transfer in owned if not _open(transfer, now_us)))
    with db.write() as conn:
        exchange(conn, minute_us, marks, rows, later)


def _open(transfer: Transfer, now_us: int) -> bool:
    """Whether ranks may still come. One that failed counts at once: no other rank makes it succeed."""
    return not transfer.complete and transfer.error is None and _closes_us(transfer) > now_us


def _closes_us(transfer: Transfer) -> int:
    return transfer.start_ns // 1000 + CLOSES_AFTER_US


def _reopened(owned: Sequence[Transfer], now_us: int) -> dict[str, int]:
    """Deployment -> when the first of its open transfers must be counted, with or without the missing ranks."""
    later: dict[str, int] = {}
    for transfer in owned:
        if _open(transfer, now_us):
            deployment, closes = transfer.key.deployment, _closes_us(transfer)
            later[deployment] = min(closes, later.get(deployment, closes))
    return later
