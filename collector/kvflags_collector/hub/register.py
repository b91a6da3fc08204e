# SPDX-License-Identifier: Apache-2.0
"""The organisations of a hub, by their keys: anybody may send, and only whom an admin admitted is counted.

Trust on first use would let one person be five organisations; that those are five is for people to know.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, func, select

from kvflags.errors import Conflict, ErrorCode, NotFound
from kvflags_collector.store.hub_tables import hub_bundles, hub_standing
from kvflags_collector.times import rfc3339

__all__ = ["Standing", "change", "listing", "organisation", "record", "standing", "standings"]


class Standing(StrEnum):
    """pending: sent something, nobody has looked. left: by its own signature, for good."""

    PENDING = "pending"
    ADMITTED = "admitted"
    DISMISSED = "dismissed"
    LEFT = "left"


def organisation(key: str) -> str:
    """What an organisation is called in lists and commands: 12 hex digits of its key's hash."""
    return hashlib.sha256(key.encode()).hexdigest()[:12]


def standings(conn: Connection, as_of_us: int | None = None) -> dict[str, tuple[Standing, str]]:
    """(standing, name) by key, of all that ever had one, as it was then."""
    s = hub_standing.c
    query = select(s.key, s.state, s.name).order_by(s.id)
    if as_of_us is not None:
        query = query.where(s.recorded_us <= as_of_us)
    return {key: (Standing(state), name) for key, state, name in conn.execute(query)}


def standing(conn: Connection, key: str) -> Standing:
    return standings(conn).get(key, (Standing.PENDING, ""))[0]


def listing(conn: Connection) -> list[dict[str, Any]]:
    """All that sent something, the first first."""
    b, said = hub_bundles.c, standings(conn)
    query = select(b.key, func.min(b.recorded_us), func.max(b.recorded_us), func.count(), func.count(b.revoked_us))
    rows = conn.execute(query.group_by(b.key).order_by(func.min(b.recorded_us), b.key))
    found = []
    for key, first, last, number, revoked in rows:
        state, name = said.get(key, (Standing.PENDING, ""))
        found.append(
            {
                "organisation": organisation(key),
                "state": state.value,
                "name": name or None,
                "key": key,
                "bundles": number,
                "revoked": revoked,
                "first_at": rfc3339(first),
                "last_at": rfc3339(last),
            }
        )
    return found


def change(conn: Connection, which: str, state: Standing, *, author: str, now: int, name: str = "") -> dict[str, Any]:
    """Admit or dismiss. Repeating it changes nothing but the name.

    NotFound (`unknown_organisation`); Conflict (`organisation_left`) for one that took itself out.
    """
    found = next((one for one in listing(conn) if one["organisation"] == which), None)
    if found is None:
        raise NotFound(
            f"no organisation {which!r} sent anything",
            hint="see `kvflags hub organisations`",
            code=ErrorCode.UNKNOWN_ORGANISATION,
        )
    if found["state"] == Standing.LEFT:
        raise Conflict(
            f"{which} took back everything and left",
            hint="it may send under a new key",
            code=ErrorCode.ORGANISATION_LEFT,
        )
    record(conn, found["key"], state, name=name or found["name"] or "", author=author, now=now)
    return next(one for one in listing(conn) if one["organisation"] == which)


def record(conn: Connection, key: str, state: Standing, *, name: str, author: str, now: int) -> None:
    values = {"key": key, "state": state.value, "name": name, "author": author, "recorded_us": now}
    conn.execute(hub_standing.insert().values(**values))
