# SPDX-License-Identifier: Apache-2.0
"""Engines that were told `on` and live: what an abort waits for. Reads only."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from kvflags.flags import Variant
from kvflags_collector.store import control_tables as tables
from kvflags_collector.store.places import Keyed

__all__ = ["keyed", "living"]


def living(conn: Connection, flag: str, now: int) -> list[dict[str, Any]]:
    """`{deployment, generation, epoch, role, engine_id}` of each, whatever its pin came to; `engine_id` null: starting.

    What engines were told counts and not the pins in force: one whose epoch was reopened goes on as it began. Engines
    with settings of their own are not ours to stop, and are left out.
    """
    return [one for _, one in keyed(conn, flag, now)]


def keyed(conn: Connection, flag: str, now: int) -> list[Keyed]:
    """The same, in order, each under (deployment, generation, role, engine, registration)."""
    e, r = tables.engines.c, tables.registrations.c
    # By name: the facts of every engine are most of a row, and reading them took four times as long as all of a page.
    heard: dict[str, list[str | None]] = {}
    living = select(e.registration, e.engine_id).where(e.lease_until_us > now)
    for registration, engine_id in conn.execute(living):
        heard.setdefault(registration, []).append(engine_id)
    items = list[Keyed]()
    query = select(r.id, r.deployment, r.generation, r.role, r.told)
    for row in conn.execute(query.where(r.lease_until_us > now)).mappings():
        told = (row["told"] or {}).get(flag)
        if told and told["variant"] == Variant.ON:
            place = {name: row[name] for name in ("deployment", "generation", "role")} | {"epoch": told["epoch"]}
            key = (row["deployment"], row["generation"], row["role"])
            for name in heard.get(row["id"], [None]):
                items.append(((*key, name or "", row["id"]), place | {"engine_id": name}))
    return sorted(items, key=lambda one: one[0])
