# SPDX-License-Identifier: Apache-2.0
"""Everything that was ever rolled up, each transfer once, from the coarsest roll-ups that are up to date.

A month counts by its one row; the open month by its days, the open day by its hours, and the open hour by its minutes.
So what is read grows with the number of deployments and months, whatever their traffic, and nobody waits for a merge.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Text, and_, cast, literal_column, select, true

from kvflags_collector.store.levels import DAY, HOUR, MINUTE, MONTH, Level, batches
from kvflags_collector.store.measures import Measures
from kvflags_collector.store.transfers import Key

__all__ = ["Rolled", "days", "history", "rolled"]

# {start of a part: deployments}
Stale = Mapping[int, Collection[str]]
_WIDTH = 1 + len(Key._fields)
_ERRORS = Measures._fields.index("errors")
# Rows fetched at once, and values bound in one statement.
_ROWS, _BATCH = 5000, 500
_BELOW = {DAY.time: HOUR, HOUR.time: MINUTE}


class Rolled(NamedTuple):
    """A row of one of the roll-ups; `start_us` is that of its minute, hour, day or month."""

    start_us: int
    key: Key
    measures: Measures


def rolled(conn: Connection) -> Iterator[Rolled]:
    """In no order. `conn` sees one state of the database throughout, or a transfer could be missing or come twice."""
    hours = _dirty(conn, HOUR)
    days = _dirty(conn, DAY, hours)
    months = _dirty(conn, MONTH, days)
    yield from _fresh(_read(conn, MONTH, true()), months)
    # In no month. One of a stale month comes with its other days.
    undecided = _fresh(_read(conn, DAY, DAY.rollups.c.epoch == literal_column("0")), days)
    yield from (row for row in undecided if row.key.deployment not in months.get(MONTH.start(row.start_us), ()))
    yield from _fresh(_instead_of(conn, DAY, MONTH, months), days)
    yield from _fresh(_instead_of(conn, HOUR, DAY, days), hours)
    yield from _instead_of(conn, MINUTE, HOUR, hours)


def history(conn: Connection, deployment: str, level: Level, times: Collection[int]) -> Iterator[Rolled]:
    """Of one deployment, in parts of `level` that begin at `times`, each from what of it is up to date. In no order."""
    stale = _stale(conn, level, deployment)
    mine = level.rollups.c.deployment == deployment
    for some in batches([at for at in times if at not in stale], _BATCH):
        yield from _read(conn, level, and_(level.at.in_(some), mine))
    if below := _BELOW.get(level.time):
        for start_us in stale.intersection(times):
            within = range(start_us, start_us + level.length_us, below.length_us)
            yield from history(conn, deployment, below, within)


def _stale(conn: Connection, level: Level, deployment: str) -> set[int]:
    """Parts that are to be made anew, in themselves or in what they are made of. A minute has nothing that could be."""
    if level is DAY:
        return {DAY.start(at) for at in _stale(conn, HOUR, deployment)} | _marked(conn, DAY, deployment)
    return _marked(conn, level, deployment) if level.time in _BELOW else set()


def _marked(conn: Connection, level: Level, deployment: str) -> set[int]:
    c = level.dirty.c
    return set(conn.scalars(select(c[level.time]).where(c.deployment == deployment)))


def days(conn: Connection, until_us: int) -> Iterator[Rolled]:
    """Whole days alone, of those that begin before a time."""
    return _read(conn, DAY, DAY.at < until_us)


def _dirty(conn: Connection, level: Level, stale: Stale | None = None) -> defaultdict[int, set[str]]:
    """Its parts that are not up to date; `stale`: those of the level below, which make theirs so."""
    found: defaultdict[int, set[str]] = defaultdict(set)
    c = level.dirty.c
    for start_us, deployment in conn.execute(select(c[level.time], c.deployment)):
        found[start_us].add(deployment)
    for start_us, deployments in (stale or {}).items():
        found[level.start(start_us)].update(deployments)
    return found


def _fresh(rows: Iterator[Rolled], stale: Stale) -> Iterator[Rolled]:
    return (row for row in rows if row.key.deployment not in stale.get(row.start_us, ()))


def _instead_of(conn: Connection, level: Level, above: Level, stale: Stale) -> Iterator[Rolled]:
    """The rows of a level that stale parts of the level above are made of."""
    for start_us, deployments in stale.items():
        within = and_(level.at >= start_us, level.at < start_us + above.length_us)
        for some in batches(sorted(deployments), _BATCH):
            yield from _read(conn, level, and_(within, level.rollups.c.deployment.in_(some)))


def _read(conn: Connection, level: Level, condition: ColumnElement[bool]) -> Iterator[Rolled]:
    c = level.rollups.c
    columns = [cast(c[name], Text) if name == "errors" else c[name] for name in (*Key._fields, *Measures._fields)]
    query = select(level.at, *columns).where(condition)
    for row in conn.execute(query.execution_options(yield_per=_ROWS)):
        measured = row[_WIDTH:]
        errors = _errors(measured[_ERRORS])
        measures = Measures._make((*measured[:_ERRORS], errors, *measured[_ERRORS + 1 :]))
        yield Rolled(row[0], Key._make(row[1:_WIDTH]), measures)


@lru_cache(maxsize=10_000)
def _errors(text: str) -> dict[str, int]:
    """Most rows say one of a few things; parsing each took a sixth of a report's time. Not to be changed."""
    found: dict[str, int] = json.loads(text)
    return found
