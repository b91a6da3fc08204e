# SPDX-License-Identifier: Apache-2.0
"""What one deployment did over time: minutes of a young one, hours of a few days, days of the last ninety."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Table, func, select

from kvflags.telemetry.instruments import InstrumentName
from kvflags_collector.feedback.totals import figures
from kvflags_collector.store.current import history
from kvflags_collector.store.levels import DAY, HOUR, MINUTE, Level
from kvflags_collector.store.measures import Measures, merge
from kvflags_collector.store.outcome_tables import outcomes_day, outcomes_hour
from kvflags_collector.times import rfc3339

__all__ = ["FELT", "felt", "series"]

# (generation, epoch)
Told = tuple[str, int]
# More points than these no chart of 420 pixels shows.
_MOST = {MINUTE: 120, HOUR: 120, DAY: 90}
FELT = {InstrumentName.TTFT.value: "ttft_ms", InstrumentName.ITL.value: "itl_ms"}
_OUTCOMES = {HOUR: outcomes_hour, DAY: outcomes_day}


def series(conn: Connection, deployment: str, variants: Mapping[Told, str], first_us: int, now: int) -> dict[str, Any]:
    """`{since, until, step_s, points: [{at, generation, variant, ...}]}`, in order of time; none where nothing came.

    A point for each generation and part of time; `variant` null where nothing was decided. Times are milliseconds: of
    transfers the median, of tokens the mean. Reads.
    """
    level, times = _parts(first_us, now)
    moved: dict[tuple[int, Told], list[Measures]] = defaultdict(list)
    for row in history(conn, deployment, level, times):
        moved[level.start(row.start_us), (row.key.generation, row.key.epoch)].append(row.measures)
    users = _felt_over_time(conn, _OUTCOMES[level], deployment, times) if level in _OUTCOMES else {}
    points = [
        {"at": rfc3339(at), "generation": told[0], "variant": variants.get(told)}
        | _moved(merge(moved.get((at, told), [])))
        | {name: users.get((at, told), {}).get(name) for name in FELT.values()}
        for at, told in sorted(moved.keys() | users.keys())
    ]
    span = {"since": rfc3339(times[0]), "until": rfc3339(now), "step_s": level.length_us // 10**6}
    return span | {"points": points}


def felt(conn: Connection, deployment: str, times: Sequence[int]) -> dict[Told, dict[str, float]]:
    """By generation, over all these days: see `series`. Reads."""
    c = outcomes_day.c
    found = _means(conn, outcomes_day, deployment, times, (c.generation, c.epoch))
    return {(generation, epoch): means for (generation, epoch), means in found.items()}


def _felt_over_time(
    conn: Connection, table: Table, deployment: str, times: Sequence[int]
) -> dict[tuple[int, Told], dict[str, float]]:
    found = _means(conn, table, deployment, times, (table.c[0], table.c.generation, table.c.epoch))
    return {(at, (generation, epoch)): means for (at, generation, epoch), means in found.items()}


def _means(
    conn: Connection, table: Table, deployment: str, times: Sequence[int], by: Sequence[Column[Any]]
) -> dict[tuple[Any, ...], dict[str, float]]:
    c = table.c
    sums = (c.instrument, func.sum(c.sum_micro), func.sum(c.count))
    mine = (c[0].in_(times), c.deployment == deployment, c.instrument.in_(FELT))
    found: dict[tuple[Any, ...], dict[str, float]] = defaultdict(dict)
    for *key, instrument, total, number in conn.execute(select(*by, *sums).where(*mine).group_by(*by, c.instrument)):
        if number:
            found[tuple(key)][FELT[instrument]] = round(float(total) / float(number) / 1000, 6)
    return found


def _parts(first_us: int, now: int) -> tuple[Level, list[int]]:
    """How finely, and from when: as far back as the deployment was known, and as a chart has room."""
    for level in (MINUTE, HOUR, DAY):
        if now - first_us < _MOST[level] * level.length_us or level is DAY:
            last = level.start(now)
            first = max(level.start(min(first_us, now)), last - (_MOST[level] - 1) * level.length_us)
            return level, list(range(first, last + 1, level.length_us))
    raise AssertionError("the last level takes everything")


def _moved(whole: Measures) -> dict[str, Any]:
    found = figures(whole)
    counts = {name: found[name] for name in ("transfers", "failed", "descriptors_per_transfer")}
    return counts | {name: found[name]["p50"] for name in ("post_ms", "transfer_ms")}
