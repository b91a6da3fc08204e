# SPDX-License-Identifier: Apache-2.0
"""Merging outcomes into their hours and days: each point once, in any order, from any number of collectors.

An hour remembers the points that are dated within it; those that are new to it go into the hour and the day in which
they really began, in the same transaction. All sums are of integers, so the order never shows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, RowMapping, Table, and_, bindparam, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from kvflags_collector.store.histogram import Histogram
from kvflags_collector.store.outcome_tables import KEY, outcomes_day, outcomes_hour
from kvflags_collector.store.skew import clocks

__all__ = ["Point", "merge"]

_HOUR_US = 3600 * 10**6
_DAY_US = 24 * _HOUR_US
# An export every 5 s. With the bounds of `ingest.outcomes` on each point, the sums of a day stay within 63 bits.
_MOST_POINTS = 720
# 12,500 engines with eight instruments each; who invents labels is stopped here, and nobody else.
_MOST_ROWS = 100_000
# Values bound in one statement; SQLite takes 32,766.
_BATCH = 500

Key = tuple[str, str, int, str, str, str]
Groups = Mapping[Key, Sequence["Point"]]
_INSERT: dict[str, Callable[[Table], Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class Point(NamedTuple):
    """One export of one instrument, which began at `began_us` by its engine's clock.

    key: in the order of KEY. token: 64 bits that tell it from others of its key.
    """

    key: Key
    began_us: int
    token: int
    values: int
    sum_micro: int
    hist: Histogram | None = None


def merge(conn: Connection, points: Iterable[Point], received_us: int) -> Counter[str]:
    """Add what is new; what was there already is left as it is. Points that could not be kept, by reason. Writes."""
    rejected: Counter[str] = Counter()
    dated = _grouped(points, _HOUR_US, {})
    fresh = [point for at in sorted(dated) for point in _unseen(conn, at, dated[at], rejected)]
    ahead = _ahead(conn, fresh, received_us)
    for table, length_us in ((outcomes_hour, _HOUR_US), (outcomes_day, _DAY_US)):
        for at, groups in sorted(_grouped(fresh, length_us, ahead).items()):
            rows = _rows(conn, table, at, groups)
            _write(conn, table, at, {key: _sum(rows[key], new) for key, new in groups.items()})
    return rejected


def _grouped(points: Iterable[Point], length_us: int, ahead: Mapping[str, int]) -> dict[int, dict[Key, list[Point]]]:
    """By hour or day, and key. `ahead`: engine -> by how much its clock is."""
    times: dict[int, dict[Key, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        began_us = point.began_us - ahead.get(point.key[3], 0)
        times[began_us // length_us * length_us][point.key].append(point)
    return times


def _ahead(conn: Connection, points: Iterable[Point], received_us: int) -> dict[str, int]:
    wrong = clocks(conn, {point.key[0] for point in points})
    return {clock.engine_id: clock.skew_us for clock in wrong if clock.since_us <= received_us < clock.until_us}


def _unseen(conn: Connection, hour_us: int, groups: Groups, rejected: Counter[str]) -> list[Point]:
    """The points that are new, noted as seen in the hour that they are dated by: a clock's correction may change."""
    rows = _rows(conn, outcomes_hour, hour_us, groups, most=_MOST_ROWS)
    fresh: list[Point] = []
    seen: dict[Key, dict[str, Any]] = {}
    for key, points in groups.items():
        if key not in rows:
            rejected[f"beyond {_MOST_ROWS} instruments of engines in one hour"] += len(points)
            continue
        before = set(_tokens(rows[key]["seen"]))
        new = list({point.token: point for point in points if point.token not in before}.values())
        room = max(0, _MOST_POINTS - len(before))
        if new[room:]:
            rejected[f"beyond {_MOST_POINTS} exports of one instrument in one hour"] += len(new[room:])
        if kept := new[:room]:
            fresh += kept
            tokens = sorted(before | {point.token for point in kept})
            seen[key] = {"seen": np.array(tokens, "<u8").tobytes()}
    _write(conn, outcomes_hour, hour_us, seen)
    return fresh


def _rows(conn: Connection, table: Table, time_us: int, groups: Groups, most: float = inf) -> dict[Key, RowMapping]:
    """The rows of these keys, made where they were missing and there is room. Held until the end of the transaction."""
    found = _read(conn, table, time_us, groups)
    if missing := sorted(groups.keys() - found.keys()):
        time = table.c[0]
        there = conn.scalar(select(func.count()).select_from(table).where(time == time_us)) or 0
        if there + len(missing) <= most:
            fresh = _INSERT[conn.dialect.name](table).on_conflict_do_nothing()
            conn.execute(fresh, [dict(zip((time.name, *KEY), (time_us, *key), strict=True)) for key in missing])
            found = _read(conn, table, time_us, groups)
    return found


def _read(conn: Connection, table: Table, time_us: int, groups: Groups) -> dict[Key, RowMapping]:
    found: dict[Key, RowMapping] = {}
    engines = sorted({key[3] for key in groups})
    for at in range(0, len(engines), _BATCH):
        mine = and_(table.c[0] == time_us, table.c.engine_id.in_(engines[at : at + _BATCH]))
        # Another collector may merge into the same rows; SQLite's one writer leaves the lock out.
        query = select(table).where(mine).order_by(*(table.c[name] for name in KEY)).with_for_update()
        for row in conn.execute(query).mappings():
            key: Any = tuple(row[name] for name in KEY)
            if key in groups:
                found[key] = row
    return found


def _sum(row: RowMapping, points: Sequence[Point]) -> dict[str, Any]:
    parts = [point.hist for point in points if point.hist is not None]
    if parts and row["hist"] is not None:
        parts.append(Histogram.from_bytes(row["hist"]))
    return {
        "points": row["points"] + len(points),
        "count": row["count"] + sum(point.values for point in points),
        "sum_micro": row["sum_micro"] + sum(point.sum_micro for point in points),
        "hist": sum(parts[1:], parts[0]).to_bytes() if parts else row["hist"],
    }


def _write(conn: Connection, table: Table, time_us: int, values: Mapping[Key, Mapping[str, Any]]) -> None:
    if not values:
        return
    mine = [table.c[0] == time_us, *(table.c[name] == bindparam(f"key_{name}") for name in KEY)]
    names = next(iter(values.values())).keys()
    statement = update(table).where(*mine).values({name: bindparam(name) for name in names})
    keys = tuple(f"key_{name}" for name in KEY)
    conn.execute(statement, [dict(zip(keys, key, strict=True)) | dict(given) for key, given in values.items()])


def _tokens(stored: bytes | None) -> list[int]:
    tokens: list[int] = np.frombuffer(stored or b"", "<u8").tolist()
    return tokens
