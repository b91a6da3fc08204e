# SPDX-License-Identifier: Apache-2.0
"""Hours from minutes, and days from hours: the rows of the level below, added up by key."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Connection, select

from kvflags_collector.store.levels import DAY, HOUR, MINUTE, Part, Rows
from kvflags_collector.store.measures import Measures, merge
from kvflags_collector.store.transfers import Key

__all__ = ["merged"]

_BELOW = {HOUR.time: MINUTE, DAY.time: HOUR}


def merged(conn: Connection, part: Part) -> Rows:
    """The rows of an hour or a day, in order of their keys. Reads only."""
    below = _BELOW[part.level.time]
    c = below.rollups.c
    within = (below.at >= part.start_us, below.at < part.start_us + part.level.length_us)
    columns = [c[name] for name in (*Key._fields, *Measures._fields)]
    parts: dict[Key, list[Measures]] = defaultdict(list)
    width = len(Key._fields)
    for row in conn.execute(select(*columns).where(*within, c.deployment.in_(part.marks))):
        parts[Key(*row[:width])].append(Measures(*row[width:]))
    return {key: merge(parts[key]) for key in sorted(parts)}
