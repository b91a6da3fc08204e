# SPDX-License-Identifier: Apache-2.0
"""What a replacement cost: how long until both roles were back, and what failed meanwhile."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, func, select

from kvflags.flags import Role
from kvflags_collector.judge.hours import Window
from kvflags_collector.store.control_tables import engines
from kvflags_collector.store.rollup_tables import rollups_hour
from kvflags_collector.times import SECOND

__all__ = ["cost"]


def cost(conn: Connection, window: Window) -> dict[str, Any]:
    """`{minutes, transfers, failed}`; minutes null where not both roles were ever heard."""
    transfers, failed = _moved(conn, window)
    return {"minutes": _minutes(conn, window), "transfers": transfers, "failed": failed}


def _minutes(conn: Connection, window: Window) -> float | None:
    """From the first registration of the generation to the later of its roles' first heartbeats."""
    moment, e = window.moment, engines.c
    query = (
        select(e.role, func.min(e.first_us))
        .where(e.deployment == moment.deployment, e.generation == moment.generation, e.first_us >= moment.event_us)
        .group_by(e.role)
    )
    first: dict[str, int] = {role: at_us for role, at_us in conn.execute(query)}  # noqa: C416 (rows are no pairs to mypy)
    if Role.BOTH in first:
        return _since(moment.event_us, first[Role.BOTH])
    if not {Role.PREFILL, Role.DECODE} <= first.keys():
        return None
    return _since(moment.event_us, max(first[Role.PREFILL], first[Role.DECODE]))


def _since(event_us: int, until_us: int) -> float:
    return round((until_us - event_us) / (60 * SECOND), 3)


def _moved(conn: Connection, window: Window) -> tuple[int, int]:
    """In the hours that count neither as before nor as after."""
    c = rollups_hour.c
    query = select(func.sum(c.transfers), func.sum(c.failed)).where(
        c.deployment == window.moment.deployment, c.hour_us >= window.before_us, c.hour_us < window.after_us
    )
    transfers, failed = conn.execute(query).one()
    return int(transfers or 0), int(failed or 0)
