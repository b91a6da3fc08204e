# SPDX-License-Identifier: Apache-2.0
"""Which engines were alive when: a bitmap of heartbeats for each engine and hour, by the collector's clock.

An hour without transfers is an hour without errors only where its engines were heard; where they were not, it is
missing, and says nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, select, text

from kvflags_collector.store.rollup_tables import presence
from kvflags_collector.times import SECOND

__all__ = ["HOUR_US", "Heard", "heard", "note"]

HOUR_US = 3600 * SECOND

# SQLite and PostgreSQL alike.
_NOTE = text(
    "INSERT INTO presence (hour_us, deployment, generation, engine_id, minutes, starts)"
    " VALUES (:hour_us, :deployment, :generation, :engine_id, :minutes, :starts)"
    " ON CONFLICT (hour_us, deployment, generation, engine_id) DO UPDATE"
    " SET minutes = presence.minutes | excluded.minutes, starts = presence.starts + excluded.starts"
)


@dataclass(frozen=True, slots=True)
class Heard:
    """An engine in an hour. `minutes`: those with a heartbeat, of 60. `starts`: how often it was new in this hour."""

    hour_us: int
    deployment: str
    generation: str
    engine_id: str
    minutes: int
    starts: int


def note(conn: Connection, deployment: str, generation: str, engine_id: str, *, new: bool, now_us: int) -> None:
    """A heartbeat came, the first under its registration where `new`. Deployment "" where the engine names none."""
    row = {"hour_us": now_us // HOUR_US * HOUR_US, "deployment": deployment, "generation": generation}
    minute = now_us % HOUR_US // (60 * SECOND)
    conn.execute(_NOTE, row | {"engine_id": engine_id, "minutes": 1 << minute, "starts": int(new)})


def heard(conn: Connection, deployments: Collection[str], since_us: int, until_us: int) -> list[Heard]:
    """Every engine of these deployments in every hour of [since_us, until_us) in which it was heard, by time."""
    c = presence.c
    query = (
        select(c.hour_us, c.deployment, c.generation, c.engine_id, c.minutes, c.starts)
        .where(c.hour_us >= since_us, c.hour_us < until_us, c.deployment.in_(deployments))
        .order_by(c.hour_us, c.deployment, c.generation, c.engine_id)
    )
    return [Heard(*row[:4], minutes=row.minutes.bit_count(), starts=row.starts) for row in conn.execute(query)]
