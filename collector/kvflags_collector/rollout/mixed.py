# SPDX-License-Identifier: Apache-2.0
"""Mixed generations: live engines that may be paired and hold different layouts. Recognised, named, counted once.

Layouts that differ between the epochs of one generation are what `deployments reopen` was told to accept: a
`transition`, which is shown while it lasts and complains to nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, func, select, update

from kvflags_collector.rollout import leases, raising
from kvflags_collector.store import control_tables as tables
from kvflags_collector.times import SECOND

__all__ = ["KIND", "TRANSITION", "look", "look_everywhere", "on_handshake_failure", "says"]

KIND = "mixed_generation"
TRANSITION = "transition"

# {epoch: {layout: [engine id, ...]}}
_Epochs = dict[int, dict[str, list[str]]]

# How long one failed handshake stands for the mixture while the layouts of both sides are not known: peers are retried
# with every request, so ten minutes without another failure mean that the pair is gone or nobody asks it anything.
_HANDSHAKE_US = 600 * SECOND


def on_handshake_failure(  # noqa: PLR0917 (called from ingest with a span's fields, in this order)
    conn: Connection,
    deployment: str,
    generation: str,
    epoch: int,
    local_engine: str,
    remote_engine: str,
    now: int,
) -> None:
    """A handshake failed for the layout: the generation is mixed, whatever the heartbeats have told so far. Writes."""
    # Spans are believed about their engine, not about which deployments exist.
    if raising.is_known(conn, deployment):
        # An engine without a decision (forced, cut off) says epoch 0 and is part of whatever epoch is in force.
        in_force = raising.epoch_in_force(conn, deployment, generation)
        epoch = epoch or in_force
        failure = {"local": local_engine, "remote": remote_engine, "at_us": now}
        theirs = leases.live_engines(conn, now, deployment, generation)
        remote = [
            _epoch_of(engine, _told(conn, theirs), in_force)
            for engine in theirs
            if engine["engine_id"] == remote_engine
        ]
        kind = TRANSITION if remote and epoch not in remote else KIND
        _raise(conn, kind, deployment, generation, epoch=epoch, cause={"handshake": failure}, now=now)


def look(conn: Connection, deployment: str, generation: str, now: int) -> bool:
    """Whether the generation is mixed now; raises or ends its alarm accordingly. Writes."""
    living = leases.live_engines(conn, now, deployment, generation)
    epochs = _by_epoch(living, _told(conn, living), raising.epoch_in_force(conn, deployment, generation))
    mixed = {epoch: layouts for epoch, layouts in epochs.items() if len(layouts) > 1}
    for epoch, layouts in mixed.items():
        _raise(conn, KIND, deployment, generation, epoch=epoch, cause={"layouts": layouts}, now=now)
    if spanning := _spanning(epochs):
        _raise(conn, TRANSITION, deployment, generation, epoch=max(epochs), cause={"layouts": spanning}, now=now)
    raised = {(KIND, epoch) for epoch in mixed} | ({(TRANSITION, max(epochs))} if spanning else set())
    return bool(mixed) | _still(conn, deployment, generation, raised=raised, living=living, now=now)


def look_everywhere(conn: Connection, now: int) -> None:
    """Look at every generation whose live engines differ, and at every alarm that stands. For the tick. Writes."""
    c = tables.engines.c
    differing = (
        select(c.deployment, c.generation)
        .where(c.lease_until_us > now, c.deployment.is_not(None), c.resolved.is_not(None))
        .group_by(c.deployment, c.generation)
        .having(func.count(c.resolved.distinct()) > 1)
    )
    a = tables.alarms.c
    standing = select(a.deployment, a.generation).where(a.kind.in_([KIND, TRANSITION]), a.ended_us.is_(None))
    for deployment, generation in conn.execute(differing.union(standing)).all():
        look(conn, deployment, generation, now)


def says(deployment: str, generation: str, detail: dict[str, Any]) -> str:
    """The alarm in one sentence."""
    if layouts := detail.get("layouts"):
        parts = [f"{len(engines)} with {layout}" for layout, engines in sorted(layouts.items())]
        return f"{deployment} {generation}: engines that may be paired hold different layouts: {', '.join(parts)}"
    failure = detail.get("handshake", {})
    return (
        f"{deployment} {generation}: {failure.get('local')} cannot pair with {failure.get('remote')}, "
        "the handshake failed for the layout"
    )


def _by_epoch(living: Sequence[RowMapping], told: dict[str, Any], in_force: int) -> _Epochs:
    epochs: _Epochs = {}
    for engine in living:
        if engine["resolved"] is not None:
            layouts = epochs.setdefault(_epoch_of(engine, told, in_force), {})
            layouts.setdefault(engine["resolved"], []).append(engine["engine_id"])
    return epochs


def _told(conn: Connection, living: Sequence[RowMapping]) -> dict[str, Any]:
    r = tables.registrations.c
    mine = select(r.id, r.told).where(r.id.in_({engine["registration"] for engine in living}))
    return {row.id: row.told for row in conn.execute(mine)}


def _epoch_of(engine: RowMapping, told: dict[str, Any], in_force: int) -> int:
    """The epoch an engine belongs to; one without a decision (forced, cut off) is part of what is in force."""
    epochs = [one["epoch"] for one in (told.get(engine["registration"]) or {}).values()]
    return max(epochs, default=in_force)


def _spanning(epochs: _Epochs) -> dict[str, list[str]]:
    """Engines by layout where one epoch has a layout that another has not; empty where all epochs agree."""
    if len({frozenset(layouts) for layouts in epochs.values()}) < 2:
        return {}
    merged: dict[str, list[str]] = {}
    for layouts in epochs.values():
        for layout, engines in layouts.items():
            merged.setdefault(layout, []).extend(engines)
    return {layout: sorted(engines) for layout, engines in merged.items()}


def _still(
    conn: Connection,
    deployment: str,
    generation: str,
    *,
    raised: set[tuple[str, int]],
    living: Sequence[RowMapping],
    now: int,
) -> bool:
    """Judge alarms whose layouts no longer differ: a recent failed handshake of live engines keeps them up."""
    ids = {engine["engine_id"] for engine in living}
    still = False
    for alarm in _standing(conn, deployment, generation):
        if (alarm["kind"], alarm["epoch"]) in raised:
            continue
        failure = alarm["detail"].get("handshake")
        # Both sides heartbeat with their layout, and it is the same one: one of them was replaced since.
        settled = failure and {failure["local"], failure["remote"]} <= _telling(living)
        if failure and not settled and failure["local"] in ids and now - failure["at_us"] < _HANDSHAKE_US:
            still = still or alarm["kind"] == KIND
        else:
            mine = tables.alarms.c.id == alarm["id"]
            conn.execute(update(tables.alarms).where(mine).values(ended_us=now, last_us=now))
    return still


def _telling(living: Sequence[RowMapping]) -> set[str]:
    return {engine["engine_id"] for engine in living if engine["resolved"] is not None}


def _standing(conn: Connection, deployment: str, generation: str) -> Sequence[RowMapping]:
    a = tables.alarms.c
    query = select(tables.alarms).where(
        a.kind.in_([KIND, TRANSITION]),
        a.deployment == deployment,
        a.generation == generation,
        a.ended_us.is_(None),
    )
    return conn.execute(query).mappings().all()


def _raise(
    conn: Connection, kind: str, deployment: str, generation: str, *, epoch: int, cause: dict[str, Any], now: int
) -> None:
    raising.raise_alarm(conn, kind, deployment, generation, epoch=epoch, cause=cause, now=now)
    if kind == KIND:
        raising.complain(conn, KIND, deployment, generation, comment=says(deployment, generation, cause), now=now)
