# SPDX-License-Identifier: Apache-2.0
"""Hours from minutes, days from hours and months from days: the rows of the level below, added up by key.

Months leave out what was sent without a decision (epoch 0): which generation that belongs to is told by its day.
"""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Connection, select

from kvflags_collector.store.levels import DAY, HOUR, MINUTE, MONTH, Part, Rows
from kvflags_collector.store.measures import Measures, merge
from kvflags_collector.store.transfers import Key

__all__ = ["merged"]

_BELOW = {HOUR.time: MINUTE, DAY.time: HOUR, MONTH.time: DAY}


def merged(conn: Connection, part: Part) -> Rows:
    """The rows of an hour, a day or a month, in order of their keys. Reads only."""
    below = _BELOW[part.level.time]
    c = below.rollups.c
    within = [below.at >= part.start_us, below.at < part.start_us + part.level.length_us]
    if part.level is MONTH:
        within.append(c.epoch != 0)
    columns = [c[name] for name in (*Key._fields, *Measures._fields)]
    parts: dict[Key, list[Measures]] = defaultdict(list)
    width = len(Key._fields)
    for row in conn.execute(select(*columns).where(*within, c.deployment.in_(part.marks))):
        parts[Key(*row[:width])].append(Measures(*row[width:]))
    return {key: merge(parts[key]) for key in sorted(parts)}
