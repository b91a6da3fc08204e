# SPDX-License-Identifier: Apache-2.0
"""What time alone brings about, once a second: epochs end, outages are over, newcomers are dealt, mixtures are gone."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, or_, select

from kvflags_collector.rollout import assign, flags, leases, mixed, observe, pins, ramp
from kvflags_collector.rollout.leases import Timing
from kvflags_collector.store.control_tables import deployments, engines
from kvflags_collector.store.database import Database
from kvflags_collector.store.roles import Role, Term
from kvflags_collector.worker import Worker

__all__ = ["Ticker", "tick"]


def tick(conn: Connection, now: int, timing: Timing | None = None) -> None:
    """Bring the ledger up to `now`. Idempotent, and late is as good as often. Writes."""
    leases.bridge(conn, timing or Timing(), now)
    pins.close_ended(conn, now)
    known = flags.by_feature(conn).values()
    for deployment in _to_observe(conn, now):
        observe.observe(conn, deployment, observe.quiet(known), now)
    for flag in known:
        assign.deal_newcomers(conn, flag, now)
        ramp.advance(conn, flag, now)
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


class Ticker(Worker):
    """The thread that ticks, in whichever collector is the ramper."""

    def __init__(
        self,
        db: Database,
        timing: Timing,
        clock: Callable[[], int],
        *,
        holder: str | None = None,
        every_s: float = 1.0,
    ) -> None:
        def work(term: Term) -> None:
            with term.write() as conn:
                tick(conn, clock(), timing)

        super().__init__(db, Role.RAMPER, work, clock=clock, holder=holder, every_s=every_s)

    def start(self) -> None:
        """Tick once, so that nothing is judged by leases that an outage should have extended, then go on by itself."""
        self.once()
        super().start()
