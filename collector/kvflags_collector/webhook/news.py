# SPDX-License-Identifier: Apache-2.0
"""What there is to tell, found in what is stored: each thing has an id, by which it is told once. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, or_, select

from kvflags.flags import Flag, Phase, expired
from kvflags_collector.rollout import flags, leases, ramp
from kvflags_collector.store import control_tables as tables
from kvflags_collector.store.webhook_tables import webhook_events
from kvflags_collector.times import rfc3339

__all__ = ["SCHEMA", "News", "news"]

SCHEMA = "kvflags.webhook/1"
_Json = dict[str, Any]


class News(NamedTuple):
    """`id` names what it is about; `body` is what is sent."""

    id: str
    body: _Json


def news(conn: Connection, since_us: int, now: int) -> list[News]:
    """What was never told. since_us: revisions from before it are history, which nobody waits for."""
    found = {one.id: one for one in _everything(conn, since_us, now)}
    told = set(conn.scalars(select(webhook_events.c.id)))
    return [one for name, one in found.items() if name not in told]


def _everything(conn: Connection, since_us: int, now: int) -> Iterator[News]:
    yield from _revisions(conn, since_us)
    yield from _condemned(conn, since_us, now)
    for flag in flags.by_feature(conn).values():
        yield from _expired(flag, now)
        yield from _approval(conn, flag, now)


def _revisions(conn: Connection, since_us: int) -> Iterator[News]:
    """Steps of ramps, whoever took them, and whatever else kvflags did by itself."""
    r = tables.flag_revisions.c
    automatic = or_(r.action == "ramp_step", r.author == "kvflags")
    rows = conn.execute(
        select(tables.flag_revisions).where(automatic, r.recorded_us >= since_us).order_by(r.recorded_us)
    )
    for row in rows.mappings():
        event = "ramp_step" if row["action"] == "ramp_step" else "automatic_action"
        flag = Flag.from_json(row["document"])
        data = {name: row[name] for name in ("action", "author", "reason", "evidence")}
        data |= {"phase": flag.phase.value, "target": str(flag.target) if flag.target else None}
        says = f"{row['action'].replace('_', ' ')} by {row['author']}: {row['reason']}"
        name = f"{row['key']}/revision/{row['revision']}"
        yield _told(name, event, flag, row["recorded_us"], says, data)


def _condemned(conn: Connection, since_us: int, now: int) -> Iterator[News]:
    """Generations that have to be replaced; those that ended before anybody was to be told are over."""
    p = tables.pins.c
    open_or_late = or_(p.closed_us.is_(None), p.closed_us >= since_us)
    rows: Sequence[Any] = (
        conn.execute(select(tables.pins).where(p.condemned_reason.is_not(None), open_or_late).order_by(p.id))
        .mappings()
        .all()
    )
    living = leases.head_count(conn, now) if rows else {}
    for row in rows:
        names = ("deployment", "generation", "epoch")
        data = {name: row[name] for name in names} | {"reason": row["condemned_reason"]}
        data["engines"] = living.get((row["deployment"], row["generation"]), 0)
        data["command"] = f"kvflags plan restarts {row['flag']} -o kubectl"
        says = f"{row['deployment']} {row['generation']} is to be replaced, prefill and decode together"
        flag = flags.get(conn, row["flag"])
        yield _told(f"{flag.key}/condemned/{row['id']}", "replacement_needed", flag, now, says, data)


def _expired(flag: Flag, now: int) -> Iterator[News]:
    if expired(flag.expires, now):
        command = f"kvflags flags extend {flag.key} --expires DAY --reason TEXT"
        data = {"expires": flag.expires, "command": command}
        says = f"{flag.key} expired on {flag.expires}: its ramp takes no step by itself"
        yield _told(f"{flag.key}/expired/{flag.expires}", "flag_expired", flag, now, says, data)


def _approval(conn: Connection, flag: Flag, now: int) -> Iterator[News]:
    """A step that waits for nothing but a person."""
    step = flag.ramp.following if flag.ramp else None
    if step is None or not step.approval or flag.phase != Phase.RUNNING or flag.kill_switch:
        return
    waits = ramp.waiting_for(conn, flag, now)
    if len(waits) == 1 and waits[0].startswith("approval:"):
        command = f"kvflags rollout promote {flag.key} --revision {flag.revision} --reason TEXT"
        says = f"the step to {step.target} waits for approval"
        data = {"target": str(step.target), "command": command}
        yield _told(f"{flag.key}/approval/{flag.revision}", "approval_needed", flag, now, says, data)


def _told(name: str, event: str, flag: Flag, at_us: int, says: str, data: _Json) -> News:  # noqa: PLR0917 - of a body
    body = {"schema": SCHEMA, "id": name, "event": event, "flag": flag.key, "feature": flag.feature}
    return News(name, body | {"revision": flag.revision, "at": rfc3339(at_us), "says": says, "data": data})
