# SPDX-License-Identifier: Apache-2.0
"""The audit log: who changed what, when and why. Flags' revisions and changes to deployments, read as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, literal, select

from kvflags_collector.store import control_tables as tables
from kvflags_collector.store.places import WHOLE, Keyed, Place
from kvflags_collector.times import rfc3339

__all__ = ["Actor", "history", "page", "record", "replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who changes something, and why; both are kept with the change."""

    author: str
    reason: str


def record(
    conn: Connection,
    actor: Actor,
    action: str,
    *,
    deployment: str,
    now: int,
    flag: str | None = None,
    generation: str | None = None,
    **detail: Any,  # noqa: ANN401 - any JSON value
) -> None:
    """Append one change of a deployment. Writes."""
    row = {"action": action, "flag": flag, "deployment": deployment, "generation": generation, "detail": detail}
    conn.execute(tables.changes.insert().values(**row, author=actor.author, reason=actor.reason, recorded_us=now))


def history(conn: Connection, flag: str) -> list[dict[str, Any]]:
    """Everything that was done under a flag, the newest first: its revisions, and what was done to deployments."""
    return [entry for _, entry in page(conn, flag, WHOLE)]


def page(conn: Connection, flag: str, place: Place) -> list[Keyed]:
    """The history from a place on. Its keys: time, whether a flag (0) or a deployment (1) was changed, number."""
    r, c = tables.flag_revisions, tables.changes
    revisions = select(r).where(r.c.key == flag)
    changes = select(c).where((c.c.flag == flag) | c.c.flag.is_(None))
    # The newest of both holds the newest of either.
    rows = conn.execute(place.falling(revisions, r.c.recorded_us, literal(0), r.c.revision)).mappings()
    found: list[Keyed] = [((row["recorded_us"], 0, row["revision"]), _revision(row)) for row in rows]
    rows = conn.execute(place.falling(changes, c.c.recorded_us, literal(1), c.c.id)).mappings()
    found += [((row["recorded_us"], 1, row["id"]), _change(row)) for row in rows]
    return sorted(found, key=lambda entry: entry[0], reverse=True)[: place.limit]


def replay(conn: Connection) -> dict[str, Any]:
    """The log folded from its first entry: `{flags, opts, declarations}` as they must stand now.

    It reads nothing but the log, so a test (or a suspicious operator) can hold it against the tables.
    """
    state: dict[str, Any] = {"flags": {}, "opts": {}, "declarations": {}}
    r, c = tables.flag_revisions.c, tables.changes.c
    for key, document in conn.execute(select(r.key, r.document).order_by(r.key, r.revision)):
        state["flags"][key] = document
    for row in conn.execute(select(c.action, c.flag, c.deployment, c.detail).order_by(c.id)):
        if row.action == "opt":
            state["opts"][row.flag, row.deployment] = row.detail["opted"]
        elif row.action == "declare":
            state["declarations"][row.deployment] = row.detail["declaration"]
    state["opts"] = {who: opted for who, opted in state["opts"].items() if opted}
    return state


def _revision(row: RowMapping) -> dict[str, Any]:
    return _entry(row) | {"revision": row["revision"], "document": row["document"], "evidence": row["evidence"]}


def _change(row: RowMapping) -> dict[str, Any]:
    return _entry(row) | {name: row[name] for name in ("deployment", "generation", "detail")}


def _entry(row: RowMapping) -> dict[str, Any]:
    said = {name: row[name] for name in ("action", "author", "reason")}
    return said | {"recorded_at": rfc3339(row["recorded_us"])}
