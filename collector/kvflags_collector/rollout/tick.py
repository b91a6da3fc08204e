# SPDX-License-Identifier: Apache-2.0
"""What time alone brings about, once a second: epochs end, outages are over, newcomers are dealt, mixtures are gone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sqlalchemy import Connection, or_, select

from kvflags.errors import KvflagsError
from kvflags_collector.rollout import assign, flags, leases, mixed, observe, pins
from kvflags_collector.rollout.leases import Timing
from kvflags_collector.store.control_tables import deployments, engines
from kvflags_collector.store.database import Database

__all__ = ["Ticker", "tick"]

_log = logging.getLogger(__name__)


def tick(conn: Connection, now: int, timing: Timing | None = None) -> None:
    """Bring the ledger up to `now`. Idempotent, and late is as good as often. Writes."""
    leases.bridge(conn, timing or Timing(), now)
    pins.close_ended(conn, now)
    known = flags.by_feature(conn).values()
    for deployment in _to_observe(conn, now):
        observe.observe(conn, deployment, observe.quiet(known), now)
    for flag in known:
        assign.deal_newcomers(conn, flag, now)
    mixed.look_everywhere(conn, now)


def _to_observe(conn: Connection, now: int) -> list[str]:
    """Deployments with a live generation that is not the observed one; a joiner's heartbeat brings the others up."""
    generation = deployments.c.observed_generation
    query = (
        select(engines.c.deployment)
        .join(deployments, deployments.c.id == engines.c.deployment)
        .where(engines.c.lease_until_us > now, or_(generation.is_(None), generation != engines.c.generation))
        .distinct()
    )
    return [name for name in conn.scalars(query) if name is not None]


class Ticker:
    """The thread that ticks. One per collector process; `close` waits for the tick in progress."""

    def __init__(self, db: Database, timing: Timing, clock: Callable[[], int], every_s: float = 1.0) -> None:
        self._db, self._timing, self._clock, self._every_s = db, timing, clock, every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvflags-tick", daemon=True)

    def start(self) -> None:
        """Tick once, so that nothing is judged by leases that an outage should have extended, then go on by itself."""
        self._once()
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._stop.is_set()

    def close(self) -> None:
        """Stop after the tick at hand."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._once()

    def _once(self) -> None:
        try:
            with self._db.write() as conn:
                tick(conn, self._clock(), self._timing)
        except KvflagsError as error:
            # The database cannot answer now; the next tick does the same work.
            _log.warning("tick put off: %s", error)
        except Exception:  # noqa: BLE001 (see below)
            # Without ticks no epoch ends and no outage is bridged, so whatever it was, the thread outlives it.
            _log.exception("tick failed")
