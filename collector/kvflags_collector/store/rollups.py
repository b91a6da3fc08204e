# SPDX-License-Identifier: Apache-2.0
"""The roll-ups: what is dirty is computed again and replaced, so rolling twice or late changes nothing.

Minutes are made of raw spans, hours of minutes, days of hours, months of days. All that is read and counted without any
lock. Only the exchange of rows is a write transaction, and happens only if the mark of the part is still the one seen
before reading: rollers never undo each other, and ingest waits for none of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from math import inf

from sqlalchemy import Connection

from kvflags_collector import times
from kvflags_collector.store.database import Database
from kvflags_collector.store.levels import DAY, HOUR, MINUTE, MONTH, Part, Rows, due, exchange, oldest_dirty
from kvflags_collector.store.merges import merged
from kvflags_collector.store.minutes import ranks_of
from kvflags_collector.store.roles import Role, Term
from kvflags_collector.store.tally import tally
from kvflags_collector.store.transfers import Transfer, transfers
from kvflags_collector.worker import Worker

__all__ = ["CLOSES_AFTER_US", "Roller", "oldest_dirty", "roll"]

Write = Callable[[], AbstractContextManager[Connection]]

# A transfer whose ranks are not all here yet is left out for so long, and after that counted as incomplete.
CLOSES_AFTER_US = 600 * 10**6
_MINUTE_NS = MINUTE.length_us * 1000


def roll(db: Database, now_us: int, *, seconds: float = inf, write: Write | None = None) -> bool:
    """Bring what is dirty and due up to date, minutes before hours, days and months, each with the oldest first.

    Returns whether all of it was done within `seconds`. Called by the `Roller`, which writes through its term, and by
    the report before it reads. Blocks; any number may run at once.
    """
    deadline = time.monotonic() + seconds
    for level in (MINUTE, HOUR, DAY, MONTH):
        with db.read() as conn:
            parts = due(conn, level, now_us)
        for part in parts:
            if time.monotonic() >= deadline:
                return False
            _renew(db, write or db.append, part, now_us)
    return True


class Roller(Worker):
    """The thread that rolls each second, or less often while that costs a tenth of a core, in one of the collectors."""

    def __init__(
        self, db: Database, *, clock: Callable[[], int] = times.now_us, holder: str | None = None, every_s: float = 1.0
    ) -> None:
        def work(term: Term) -> float:
            began = time.monotonic()
            # A second at a time, so that closing does not wait for long and the lease is renewed.
            done = roll(db, clock(), seconds=1.0, write=term.write)
            # The minute under way is counted anew on each pass, so passes get longer with its traffic: seldom, then.
            # But minutes that wait are each counted once, and the sooner the better.
            return max(every_s, 9 * (time.monotonic() - began)) if done else 0.0

        super().__init__(db, Role.ROLLER, work, clock=clock, holder=holder, every_s=every_s)


def _renew(db: Database, write: Write, part: Part, now_us: int) -> None:
    later: Mapping[str, int] = {}
    with db.read() as conn:
        if part.level is MINUTE:
            rows, later = _counted(conn, part, now_us)
        else:
            rows = merged(conn, part)
    with write() as conn:
        exchange(conn, part, rows, now_us=now_us, later=later)


def _counted(conn: Connection, part: Part, now_us: int) -> tuple[Rows, Mapping[str, int]]:
    """The rows of a minute, and when it must be counted again: deployment -> time."""
    ranks = ranks_of(conn, part.start_us, list(part.marks))
    begins = part.start_us * 1000
    owned = [one for one in transfers(ranks) if 0 <= one.start_ns - begins < _MINUTE_NS]
    waiting = [one for one in owned if _open(one, now_us)]
    return tally([one for one in owned if not _open(one, now_us)] if waiting else owned), _closing(waiting)


def _open(transfer: Transfer, now_us: int) -> bool:
    """Whether ranks may still come. One that failed counts at once: no other rank makes it succeed."""
    return not transfer.complete and transfer.error is None and _closes_us(transfer) > now_us


def _closes_us(transfer: Transfer) -> int:
    return transfer.start_ns // 1000 + CLOSES_AFTER_US


def _closing(waiting: Sequence[Transfer]) -> dict[str, int]:
    """Deployment -> when the first of its open transfers must be counted, with or without the missing ranks."""
    later: dict[str, int] = {}
    for transfer in waiting:
        deployment, closes = transfer.key.deployment, _closes_us(transfer)
        later[deployment] = min(closes, later.get(deployment, closes))
    return later
