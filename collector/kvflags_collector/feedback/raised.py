# SPDX-License-Identifier: Apache-2.0
"""The alarms of a report: what was seen to be wrong in its deployments, and whether it still is. Reads only."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, RowMapping, select

from kvflags_collector.feedback.document import Alarm
from kvflags_collector.rollout import mixed
from kvflags_collector.rollout.alarms import says
from kvflags_collector.store.control_tables import alarms
from kvflags_collector.times import rfc3339

__all__ = ["mixtures", "raised"]


def raised(conn: Connection, deployments: Collection[str], as_of_us: int) -> list[Alarm]:
    """The oldest first, as they stood at a time."""
    a = alarms.c
    rows = conn.execute(select(alarms).where(a.first_us <= as_of_us).order_by(a.first_us, a.id)).mappings()
    return [_alarm(row, as_of_us) for row in rows if row["deployment"] in deployments]


def mixtures(found: Collection[Alarm]) -> int:
    """Generations whose engines held different layouts, also those that are over."""
    return len({(one["deployment"], one["generation"]) for one in found if one["kind"] == mixed.KIND})


def _alarm(row: RowMapping, as_of_us: int) -> Alarm:
    ended_us = row["ended_us"]
    return {
        "kind": row["kind"],
        "deployment": row["deployment"],
        "generation": row["generation"],
        "epoch": row["epoch"],
        "says": says(row),
        "first_at": rfc3339(row["first_us"]),
        "ended_at": rfc3339(ended_us) if ended_us is not None and ended_us <= as_of_us else None,
    }
