# SPDX-License-Identifier: Apache-2.0
"""Who lives: starting leases, running leases, and what an outage of the collector does to both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import CompoundSelect, Connection, RowMapping, and_, bindparam, exists, func, select, union_all, update

from kvflags_collector.store import locks
from kvflags_collector.store.control_tables import collectors, engines, registrations
from kvflags_collector.times import SECOND

__all__ = ["Timing", "bridge", "first_lease", "head_count", "live_engines", "live_registrations", "renew"]

# Statements of every heartbeat are built once: building one takes SQLAlchemy longer than it takes SQLite to run it.
_ALIVE = select(func.max(collectors.c.alive_us))
_UNDER = select(func.count()).select_from(engines).where(engines.c.registration == bindparam("registration"))
_GIVE_WAY = update(registrations).where(registrations.c.id == bindparam("registration"))
_GIVE_WAY_TO_LATER = _GIVE_WAY.where(registrations.c.lease_until_us < bindparam("until"))
_R = registrations.c
_PEERS = (
    select(registrations)
    .where(
        _R.lease_until_us > bindparam("now"),
        _R.deployment == bindparam("deployment"),
        _R.generation == bindparam("generation"),
    )
    .order_by(_R.registered_us)
)
# The name under which this collector notes that it was alive. Several collectors will each have their own.
_SELF = "collector"


@dataclass(frozen=True, slots=True)
class Timing:
    """How long leases last. `heartbeat_s` is what engines are told; a running lease is three of them.

    start_lease_s: weights load slowly (30 minutes), so an engine counts as live that long before its first heartbeat.
    """

    heartbeat_s: float = 30.0
    start_lease_s: float = 1800.0

    @property
    def running_us(self) -> int:
        return round(3 * self.heartbeat_s * SECOND)

    @property
    def outage_us(self) -> int:
        """From when silence of the collector is an outage: engines on time have two heartbeats of their lease left, and
        the next comes within one. Ticks come each second; five of them missed are no outage but a busy machine."""
        return round(max(self.heartbeat_s, 5.0) * SECOND)

    @property
    def starting_us(self) -> int:
        return round(self.start_lease_s * SECOND)


def live_registrations(
    conn: Connection, now: int, deployment: str | None = None, generation: str | None = None
) -> Sequence[RowMapping]:
    """Registrations whose lease holds, the oldest first; of one deployment or generation where given."""
    if deployment is not None and generation is not None:
        given = {"now": now, "deployment": deployment, "generation": generation}
        return conn.execute(_PEERS, given).mappings().all()
    query = select(registrations).where(registrations.c.lease_until_us > now).order_by(registrations.c.registered_us)
    if deployment is not None:
        query = query.where(registrations.c.deployment == deployment)
    if generation is not None:
        query = query.where(registrations.c.generation == generation)
    return conn.execute(query).mappings().all()


def live_engines(
    conn: Connection, now: int, deployment: str | None = None, generation: str | None = None
) -> Sequence[RowMapping]:
    """Engines whose lease holds, the oldest first: those that heartbeat, not those still starting."""
    query = select(engines).where(engines.c.lease_until_us > now).order_by(engines.c.first_us, engines.c.engine_id)
    if deployment is not None:
        query = query.where(engines.c.deployment == deployment)
    if generation is not None:
        query = query.where(engines.c.generation == generation)
    return conn.execute(query).mappings().all()


def first_lease(timing: Timing, running: str | None, now: int) -> int:
    """Until when a registration counts as live without a heartbeat. One that runs already will heartbeat at once."""
    return now + (timing.starting_us if running is None else timing.running_us)


def renew(conn: Connection, registration: str, *, expected: int, until: int) -> None:
    """A heartbeat came, and its engine holds a lease: the registration's starting lease gives way to that.

    With data parallelism (`expected` engines under one registration) the starting lease stays until all were heard,
    else those that load more slowly would be taken for dead.
    """
    complete = expected <= 1 or (conn.scalar(_UNDER, {"registration": registration}) or 0) >= expected
    given = {"registration": registration, "lease_until_us": until}
    if complete:
        conn.execute(_GIVE_WAY, given)
    else:
        conn.execute(_GIVE_WAY_TO_LATER, given | {"until": until})


def bridge(conn: Connection, timing: Timing, now: int) -> bool:
    """Run first in every transaction that judges leases: whether an outage of the collector has just ended.

    Nobody could heartbeat while no collector was alive. Every lease that held when that began is extended to the end of
    the outage plus one lease, so that nothing is decided anew because of it.
    """
    alive = conn.scalar(_ALIVE)
    if alive is not None and now - alive < SECOND:
        # Once a second is enough to tell an outage of 90 s from none, and spares a page write per request.
        return False
    alive = _note_alive(conn, now)
    if alive is None or now - alive < timing.outage_us:
        return False
    until = now + timing.running_us
    for table in (registrations, engines):
        held = and_(table.c.lease_until_us > alive, table.c.lease_until_us < until)
        conn.execute(update(table).where(held).values(lease_until_us=until))
    return True


def _note_alive(conn: Connection, now: int) -> int | None:
    """Note it, once others have: of those who come at the same time only the first sees the outage's end."""
    locks.once(conn, "collectors")
    alive: int | None = conn.scalar(_ALIVE)
    if alive is None:
        conn.execute(collectors.insert().values(id=_SELF, alive_us=now))
    elif now - alive >= SECOND:
        conn.execute(update(collectors).values(alive_us=now))
    return alive


def head_count(conn: Connection, now: int, deployment: str | None = None) -> dict[tuple[str | None, str], int]:
    """Live engines of each (deployment, generation): those that heartbeat, and each registration still starting."""
    query, given = (_HEADS, {"now": now}) if deployment is None else (_HEADS_OF, {"now": now, "deployment": deployment})
    counts: dict[tuple[str | None, str], int] = {}
    for name, generation, number in conn.execute(query, given):
        counts[name, generation] = counts.get((name, generation), 0) + number
    return counts


def _heads(*, of_one: bool) -> CompoundSelect[str | None, str, int]:
    living = engines.c.lease_until_us > bindparam("now")
    # Of each registration by itself: `not in` would go through the engines of the whole fleet for one deployment.
    heard = exists().where(engines.c.registration == registrations.c.id, living)
    starting = and_(registrations.c.lease_until_us > bindparam("now"), ~heard)
    parts = []
    for table, lives in ((engines, living), (registrations, starting)):
        query = select(table.c.deployment, table.c.generation, func.count()).where(lives)
        if of_one:
            query = query.where(table.c.deployment == bindparam("deployment"))
        parts.append(query.group_by(table.c.deployment, table.c.generation))
    return union_all(*parts)


_HEADS, _HEADS_OF = _heads(of_one=False), _heads(of_one=True)
