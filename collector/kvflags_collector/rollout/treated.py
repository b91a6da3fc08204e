# SPDX-License-Identifier: Apache-2.0
"""Engines that were told `on` and live: what an abort waits for. Reads only."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from kvflags.flags import Variant
from kvflags_collector.rollout import leases

__all__ = ["living"]


def living(conn: Connection, flag: str, now: int) -> list[dict[str, Any]]:
    """`{deployment, generation, epoch, role, engine_id}` of each, whatever its pin came to; `engine_id` null: starting.

    What engines were told counts and not the pins in force: one whose epoch was reopened goes on as it began. Engines
    with settings of their own are not ours to stop, and are left out.
    """
    items: list[dict[str, Any]] = []
    ids: dict[str, list[str | None]] = {}
    for row in leases.live_engines(conn, now):
        ids.setdefault(row["registration"], []).append(row["engine_id"])
    for row in leases.live_registrations(conn, now):
        told = (row["told"] or {}).get(flag)
        if told and told["variant"] == Variant.ON:
            place = {name: row[name] for name in ("deployment", "generation", "role")} | {"epoch": told["epoch"]}
            items += [place | {"engine_id": name} for name in ids.get(row["id"], [None])]
    return sorted(items, key=lambda one: (one["deployment"], one["generation"], one["role"], one["engine_id"] or ""))
