# SPDX-License-Identifier: Apache-2.0
"""Alarms as the API shows them. Reads only."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, RowMapping, case, select

from kvflags_collector.rollout import canaries, mixed
from kvflags_collector.store import control_tables as tables
from kvflags_collector.store.places import WHOLE, Place
from kvflags_collector.times import rfc3339

__all__ = ["listing", "says", "standing"]


def listing(conn: Connection, place: Place = WHOLE) -> list[dict[str, Any]]:
    """Alarms from a place on, those that stand first, the newest of them first. The key is (1 where it stands, id)."""
    a = tables.alarms.c
    query = place.falling(select(tables.alarms), case((a.ended_us.is_(None), 1), else_=0), a.id)
    return [_alarm(row) for row in conn.execute(query).mappings()]


def standing(conn: Connection, deployments: Collection[str]) -> list[dict[str, Any]]:
    """The alarms of these deployments that have not ended."""
    a = tables.alarms.c
    query = select(tables.alarms).where(a.ended_us.is_(None)).order_by(a.id)
    return [_alarm(row) for row in conn.execute(query).mappings() if row["deployment"] in deployments]


def says(row: RowMapping) -> str:
    """An alarm in one sentence."""
    words = canaries.says if row["kind"] == canaries.KIND else mixed.says
    return words(row["deployment"], row["generation"], row["detail"])


def _alarm(row: RowMapping) -> dict[str, Any]:
    names = ("id", "kind", "flag", "deployment", "generation", "epoch", "detail")
    return {name: row[name] for name in names} | {
        "says": says(row),
        "first_at": rfc3339(row["first_us"]),
        "last_at": rfc3339(row["last_us"]),
        "ended_at": rfc3339(row["ended_us"]),
    }
