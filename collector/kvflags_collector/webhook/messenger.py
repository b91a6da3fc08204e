# SPDX-License-Identifier: Apache-2.0
"""The thread that tells: it finds what is new, and delivers what is due, in whichever collector is the messenger.

Each is delivered once, or again after a collector was killed or lost the role between the answer and its note of it;
the id is the same then. No transaction is open while a receiver is waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kvflags_collector.store.database import Database
from kvflags_collector.store.roles import Role, Term
from kvflags_collector.times import SECOND
from kvflags_collector.webhook import outbox
from kvflags_collector.webhook.news import news
from kvflags_collector.webhook.send import Target, send
from kvflags_collector.worker import Worker

__all__ = ["Messenger"]

_log = logging.getLogger(__name__)


class Messenger(Worker):
    """`clock` gives microseconds, UTC. Close it before the database."""

    def __init__(
        self,
        db: Database,
        target: Target,
        clock: Callable[[], int],
        *,
        holder: str | None = None,
        every_s: float = 2.0,
    ) -> None:
        def work(term: Term) -> None:
            _gather(term, clock())
            _deliver(term, target, clock)

        super().__init__(db, Role.MESSENGER, work, clock=clock, holder=holder, every_s=every_s)


def _gather(term: Term, now: int) -> None:
    """Note down what was not told yet; an idle pass writes nothing."""
    with term.db.read() as conn:
        since = outbox.begun(conn)
        found = news(conn, now if since is None else since, now)
    if found or since is None:
        with term.write() as conn:
            outbox.put(conn, found, now, first=since is None)


def _deliver(term: Term, target: Target, clock: Callable[[], int]) -> None:
    """Until one fails: where a receiver is away, the others would only wait for the same silence."""
    with term.db.read() as conn:
        waiting = outbox.due(conn, clock())
    for one in waiting:
        error = send(target, one.id, one.body, clock() // SECOND)
        with term.write() as conn:
            if not error:
                outbox.delivered(conn, one, clock())
                continue
            again = outbox.failed(conn, one, error, clock())
        _log.log(logging.WARNING if again else logging.ERROR, "webhook %s: %s%s", one.id, error, _then(again))
        return


def _then(again: bool) -> str:
    return "; it is tried again" if again else f"; given up after {outbox.ATTEMPTS} tries"
