# SPDX-License-Identifier: Apache-2.0
"""Why a deployment is told what it is told: the pin in force, and the precedence line by line for what comes next."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from kvflags.errors import ErrorCode, NotFound
from kvflags_collector.rollout import flags, leases, standing
from kvflags_collector.rollout.pins import Pin, open_pin
from kvflags_collector.store.control_tables import deployments, pins
from kvflags_collector.times import rfc3339

__all__ = ["explain", "newest", "shown"]


def explain(conn: Connection, key: str, deployment: str, now: int, generation: str | None = None) -> dict[str, Any]:
    """`{deployment, generation, won, lines, pin, next}`: `won` names the line that decides for `generation`.

    Without a generation it is the newest that lives, else the last that was pinned. NotFound (`unknown_deployment`).
    """
    flag = flags.get(conn, key)
    if conn.scalar(select(deployments.c.id).where(deployments.c.id == deployment)) is None:
        message, hint = f"there is no deployment {deployment!r}", "see `kvflags deployments list`"
        raise NotFound(message, hint=hint, code=ErrorCode.UNKNOWN_DEPLOYMENT)
    generation = generation or newest(conn, key, deployment, now)
    pin = open_pin(conn, key, deployment, generation) if generation else None
    ruling = standing.rule(conn, flag, deployment, now)
    lines = [{"line": "pin", "outcome": _says(pin), "won": pin is not None}]
    lines += [{"line": a.line, "outcome": a.outcome, "won": a.won and pin is None} for a in ruling.trace]
    return {
        "deployment": deployment,
        "generation": generation,
        "won": next(line["line"] for line in lines if line["won"]),
        "lines": lines,
        "pin": shown(pin) if pin else None,
        "next": {"variant": ruling.variant, "reason": ruling.reason, "line": ruling.trace[-1].line},
    }


def shown(pin: Pin) -> dict[str, Any]:
    """A pin for the API."""
    names = ("epoch", "variant", "arm", "comparison", "reason", "revision", "bucket", "state", "condemned_reason")
    plain = {name: getattr(pin, name) for name in (*names, "excluded_because", "pinned_by")}
    return plain | {"pinned_at": rfc3339(pin.pinned_us), "closed_at": rfc3339(pin.closed_us)}


def _says(pin: Pin | None) -> str:
    if pin is None:
        return "none in force"
    because = f" by {pin.condemned_reason}" if pin.condemned_reason else ""
    return f"{pin.variant}: {pin.reason} (epoch {pin.epoch}, {pin.state}{because})"


def newest(conn: Connection, key: str, deployment: str, now: int) -> str | None:
    """The deployment's newest living generation, else the last that was pinned; None for one that never ran."""
    if living := leases.live_registrations(conn, now, deployment):
        return str(living[-1]["generation"])
    mine = (pins.c.flag == key, pins.c.deployment == deployment)
    return conn.scalar(select(pins.c.generation).where(*mine).order_by(pins.c.id.desc()).limit(1))
