# SPDX-License-Identifier: Apache-2.0
"""How far a flag is from what was declared with it: its criteria with their numbers, and its expiry. Reads only."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, func, select

from kvflags.flags import BUCKETS, Arm, Comparison, Flag, Phase, expired, graded
from kvflags_collector.rollout import ramp
from kvflags_collector.store import control_tables as tables
from kvflags_collector.times import SECOND

__all__ = ["graduation"]

_DAY_US = 86_400 * SECOND


def graduation(conn: Connection, flag: Flag, now: int, scope: Collection[str] | None) -> dict[str, Any]:
    """`{criteria: [{says, met, detail}], expires, expired}`.

    scope: the strata that the verdict is ready for; None where nobody asked for the verdict.
    """
    found = graded(flag.criteria, _figures(conn, flag, now), scope) if flag.criteria else []
    return {
        "criteria": [one.to_json() for one in found],
        "expires": flag.expires,
        "expired": expired(flag.expires, now),
    }


def _figures(conn: Connection, flag: Flag, now: int) -> dict[str, float | None]:
    return {
        "treated": ramp.effective(conn, flag, now),
        "control": _control(conn, flag),
        "days": _days(_first_treated(conn, flag), now),
        "days_at_100": _days(_whole_since(conn, flag), now),
        "alarms": _alarms(conn, flag),
    }


def _days(since_us: int | None, now: int) -> float:
    """0 before it began, and where a clock was set back behind it."""
    return max(now - since_us, 0) / _DAY_US if since_us is not None else 0.0


def _control(conn: Connection, flag: Flag) -> int:
    a = tables.assignments.c
    mine = (a.flag == flag.key, a.arm == Arm.CONTROL, a.comparison == Comparison.INCLUDED)
    return conn.scalar(select(func.count()).where(*mine)) or 0


def _first_treated(conn: Connection, flag: Flag) -> int | None:
    p = tables.pins.c
    mine = (p.flag == flag.key, p.arm == Arm.TREATMENT, p.variant == "on")
    first: int | None = conn.scalar(select(func.min(p.pinned_us)).where(*mine))
    return first


def _whole_since(conn: Connection, flag: Flag) -> int | None:
    """Since when everybody is aimed at, without a break; None while not everybody is."""
    r = tables.flag_revisions.c
    since = None
    newest_first = select(r.document, r.recorded_us).where(r.key == flag.key).order_by(r.revision.desc())
    for document, recorded_us in conn.execute(newest_first):
        if not _whole(Flag.from_json(document)):
            break
        since = recorded_us
    return since


def _whole(flag: Flag) -> bool:
    aims = [flag.target, *flag.overrides.values()]
    everybody = all(aim is not None and aim.share == BUCKETS for aim in aims)
    return everybody and flag.phase in {Phase.RUNNING, Phase.COMPLETED} and not flag.kill_switch


def _alarms(conn: Connection, flag: Flag) -> int:
    a, p = tables.alarms.c, tables.pins.c
    mine = select(p.deployment).where(p.flag == flag.key)
    return conn.scalar(select(func.count()).where(a.ended_us.is_(None), a.deployment.in_(mine))) or 0
