# SPDX-License-Identifier: Apache-2.0
"""Feedback as people give it, change it and take it back. Nothing is ever lost: each change is a further revision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, func, select

from kvflags.errors import Conflict, ErrorCode, NotFound
from kvflags_collector.feedback.known import known
from kvflags_collector.rollout.audit import Actor
from kvflags_collector.store.feedback_tables import given_feedback
from kvflags_collector.times import rfc3339

__all__ = ["TAGS", "edit", "give", "listing", "show", "withdraw"]

Json = dict[str, Any]

# What it is about; a closed list, so that it can be counted across fleets.
TAGS = ("latency", "errors", "quality", "memory", "crash")

_PREFIX = "g"
_SAID = ("sign", "tags", "comment")
_WITHDRAW = "withdraw"


def give(conn: Connection, flag: str, deployment: str, said: Json, *, author: str, now: int) -> Json:
    """Keep what somebody said: `said` is sign, tags and comment. NotFound for an unknown deployment. Writes."""
    number = (conn.execute(select(func.max(given_feedback.c.number))).scalar() or 0) + 1
    seen = known(conn, flag, deployment, now)
    row = {"number": number, "revision": 1, "action": "give", "flag": flag, "deployment": deployment, "seen": seen}
    conn.execute(given_feedback.insert().values(**row, **_told(said), author=author, recorded_us=now))
    return show(conn, flag, f"{_PREFIX}{number}")


def edit(conn: Connection, flag: str, name: str, said: Json, *, actor: Actor, revision: int | None, now: int) -> Json:
    """Put what `said` has in the place of what stood there. NotFound; Conflict when it was withdrawn, or is no longer
    at `revision`. Writes."""
    last = _last(conn, flag, name, revision)
    if last["action"] == _WITHDRAW:
        raise Conflict(
            f"feedback {name} was withdrawn by {last['author']}",
            hint=f"give it anew: kvflags feedback give {flag} ...",
            code=ErrorCode.WRONG_PHASE,
        )
    _append(conn, last, "edit", said, actor=actor, now=now)
    return show(conn, flag, name)


def withdraw(conn: Connection, flag: str, name: str, *, actor: Actor, revision: int | None, now: int) -> Json:
    """Take it out of every count from now on; what was said stays readable. Repeating it changes nothing. Writes."""
    last = _last(conn, flag, name, revision)
    if last["action"] != _WITHDRAW:
        _append(conn, last, _WITHDRAW, {}, actor=actor, now=now)
    return show(conn, flag, name)


def show(conn: Connection, flag: str, name: str) -> Json:
    """One, with all its revisions, the oldest first. NotFound."""
    rows = _revisions(conn, flag, name)
    return _item(rows) | {"revisions": [_revision(row) for row in rows]}


def listing(conn: Connection, flag: str, as_of_us: int) -> list[Json]:
    """As each stood at a time, the newest first; also what was withdrawn by then."""
    g = given_feedback.c
    query = select(given_feedback).where(g.flag == flag, g.recorded_us <= as_of_us).order_by(g.number, g.revision)
    found: dict[int, list[RowMapping]] = {}
    for row in conn.execute(query).mappings():
        found.setdefault(row["number"], []).append(row)
    return [_item(rows) for rows in reversed(found.values())]


def _told(said: Json) -> Json:
    return {name: said[name] for name in _SAID}


def _append(conn: Connection, last: RowMapping, action: str, said: Json, *, actor: Actor, now: int) -> None:
    row = {**last, "revision": last["revision"] + 1, "action": action, **said}
    row |= {"author": actor.author, "reason": actor.reason, "recorded_us": now}
    conn.execute(given_feedback.insert().values(**row))


def _revisions(conn: Connection, flag: str, name: str) -> list[RowMapping]:
    number = name.removeprefix(_PREFIX)
    rows: list[RowMapping] = []
    if name != number and number.isascii() and number.isdigit() and len(number) < 10:
        g = given_feedback.c
        query = select(given_feedback).where(g.flag == flag, g.number == int(number)).order_by(g.revision)
        rows = list(conn.execute(query).mappings())
    if not rows:
        raise NotFound(
            f"no feedback {name!r} was given on {flag}",
            hint=f"see `kvflags feedback list {flag}`; what was measured cannot be changed",
            code=ErrorCode.UNKNOWN_FEEDBACK,
        )
    return rows


def _last(conn: Connection, flag: str, name: str, revision: int | None) -> RowMapping:
    last = _revisions(conn, flag, name)[-1]
    if revision not in {None, last["revision"]}:
        raise Conflict(
            f"feedback {name} is at revision {last['revision']} by {last['author']}, not {revision}",
            hint=f"see `kvflags feedback show {flag} {name}`, and decide anew",
        )
    return last


def _item(rows: Sequence[RowMapping]) -> Json:
    first, last = rows[0], rows[-1]
    return {
        "id": f"{_PREFIX}{first['number']}",
        "flag": first["flag"],
        "deployment": first["deployment"],
        "source": "given",
        **_told(dict(last)),
        "author": first["author"],
        "recorded_at": rfc3339(first["recorded_us"]),
        **first["seen"],
        "revision": last["revision"],
        "changed_by": last["author"] if len(rows) > 1 else None,
        "changed_at": rfc3339(last["recorded_us"]) if len(rows) > 1 else None,
        "withdrawn": last["action"] == _WITHDRAW,
    }


def _revision(row: RowMapping) -> Json:
    names = ("revision", "action", "author", "reason", *_SAID)
    return {name: row[name] for name in names} | {"recorded_at": rfc3339(row["recorded_us"])}
