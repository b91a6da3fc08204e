# SPDX-License-Identifier: Apache-2.0
"""Raise an alarm, and say it as measured feedback: each once, however often its cause is seen."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, func, select, update

from kvflags_collector.store.control_tables import alarms, deployments, feedback, pins

__all__ = ["complain", "epoch_in_force", "is_known", "raise_alarm"]


def is_known(conn: Connection, deployment: str) -> bool:
    """Whether an engine of it ever registered. What else is said of a deployment does not make it exist."""
    return conn.scalar(select(deployments.c.id).where(deployments.c.id == deployment)) is not None


def epoch_in_force(conn: Connection, deployment: str, generation: str) -> int:
    """The newest epoch of a generation; 0 where nothing was ever decided for it."""
    newest = select(func.max(pins.c.epoch)).where(pins.c.deployment == deployment, pins.c.generation == generation)
    return conn.scalar(newest) or 0


def raise_alarm(
    conn: Connection, kind: str, deployment: str, generation: str, *, epoch: int, cause: dict[str, Any], now: int
) -> None:
    """One alarm per (kind, deployment, generation, epoch); causes add up; one that ended stands again. Writes."""
    a = alarms.c
    mine = (a.kind == kind, a.deployment == deployment, a.generation == generation, a.epoch == epoch)
    row = conn.execute(select(alarms).where(*mine)).mappings().first()
    if row is None:
        flags = _flags(conn, deployment, generation)
        values = {"kind": kind, "deployment": deployment, "generation": generation, "epoch": epoch, "detail": cause}
        flag = flags[0] if len(flags) == 1 else None
        conn.execute(alarms.insert().values(**values, flag=flag, first_us=now, last_us=now))
        return
    detail = row["detail"] | cause
    if detail != row["detail"] or row["ended_us"] is not None:
        conn.execute(update(alarms).where(*mine).values(detail=detail, last_us=now, ended_us=None))


def complain(conn: Connection, tag: str, deployment: str, generation: str, *, comment: str, now: int) -> None:
    """One measured negative signal per (flag, deployment, generation, tag), for each flag that decided here. Writes."""
    f = feedback.c
    for flag in _flags(conn, deployment, generation):
        given = (f.flag == flag, f.deployment == deployment, f.generation == generation, f.tag == tag)
        if conn.execute(select(f.id).where(*given)).first() is None:
            row = {"flag": flag, "deployment": deployment, "generation": generation, "sign": "negative"}
            rest = {"source": "measured", "tag": tag, "comment": comment, "author": "kvflags", "recorded_us": now}
            conn.execute(feedback.insert().values(**row, **rest))


def _flags(conn: Connection, deployment: str, generation: str) -> list[str]:
    c = pins.c
    pinned = select(c.flag).where(c.deployment == deployment, c.generation == generation).distinct().order_by(c.flag)
    return list(conn.scalars(pinned))
