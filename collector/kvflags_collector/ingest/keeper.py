# SPDX-License-Identifier: Apache-2.0
"""The one thread that writes what comes seldom: outcomes (an export a minute from each engine) and events.

Another than that of spans, because its transactions read before they write, and spans must not wait for that.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from sqlalchemy import Connection

from kvflags_collector.ingest.group_commit import GroupCommit
from kvflags_collector.store.database import Database

__all__ = ["Keepable", "Keeper"]

# Requests in one transaction: 64 engines' outcomes are about 20 ms of merging.
_GROUP = 64


class Keepable(Protocol):
    """A decoded request; false where it holds nothing. `size`: its bytes, inflated.

    `rejected` grows by what `store` gives, once it is committed.
    """

    size: int
    rejected: Counter[str]

    def __bool__(self) -> bool: ...

    def store(self, conn: Connection) -> Counter[str]:
        """Write it; safe to repeat. What could not be kept, by reason."""
        ...


class Keeper(GroupCommit[Keepable]):
    """Stores what `outcomes` and `events` decoded. One per process; started and closed with the server."""

    def __init__(self, db: Database) -> None:
        super().__init__("keeper", "outcomes or events", _GROUP)
        self._db = db

    def _size(self, item: Keepable) -> int:
        return int(bool(item))

    def _store(self, items: list[Keepable]) -> None:
        with self._db.append() as conn:
            kept = [item.store(conn) for item in items]
        for item, refused in zip(items, kept, strict=True):
            item.rejected.update(refused)
