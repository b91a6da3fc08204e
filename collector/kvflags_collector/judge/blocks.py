# SPDX-License-Identifier: Apache-2.0
"""The error guard's blocks: six hours of one deployment's transfers and failures, written once, an hour after each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select

from kvflags_collector.judge import hours
from kvflags_collector.judge.hours import HOUR_US, Window
from kvflags_collector.judge.moments import Moment
from kvflags_collector.store.frozen_tables import frozen_blocks
from kvflags_collector.verdict import errors
from kvflags_collector.verdict.arrays import Floats

__all__ = ["BLOCK_HOURS", "Run", "due", "insert", "runs"]

BLOCK_HOURS = 6
# A transfer of several ranks is closed after 10 minutes, and a guard that waited for a whole day would be none.
_GRACE_US = HOUR_US
_WATCHED_DAYS = errors.WATCHED_BLOCKS * BLOCK_HOURS // 24

Event = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Run:
    """(blocks,) each, from the first of before; 28 of them are."""

    failed: Floats
    transfers: Floats


def due(conn: Connection, flag: str, found: Sequence[Moment], now: int) -> Iterator[dict[str, Any]]:
    """Rows of blocks that are over and not yet written; events without a generation before them have none."""
    written = _written(conn, flag)
    for moment in found:
        if moment.previous is None:
            continue
        window = Window(moment, _WATCHED_DAYS)
        done = written.get((moment.deployment, moment.event_us), 0)
        over = min((now - _GRACE_US - window.after_us) // (BLOCK_HOURS * HOUR_US), errors.WATCHED_BLOCKS)
        # The baseline is written together with the first block that is held against it.
        if over < 1 or done >= errors.BASELINE_BLOCKS + over:
            continue
        until_us = window.after_us + over * BLOCK_HOURS * HOUR_US
        if not hours.rolled_up(conn, moment.deployment, until_us):
            continue
        transfers, failed = hours.moved(conn, window)
        for block in range(done, errors.BASELINE_BLOCKS + over):
            some = slice(block * BLOCK_HOURS, (block + 1) * BLOCK_HOURS)
            yield {
                "flag": flag,
                "deployment": moment.deployment,
                "event_us": moment.event_us,
                "block": block,
                "failed": int(failed[some].sum()),
                "transfers": int(transfers[some].sum()),
                "recorded_us": now,
            }


def insert(conn: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Without those that another judge has written since they were read. Writes."""
    written: dict[str, Mapping[Event, int]] = {flag: _written(conn, flag) for flag in {row["flag"] for row in rows}}
    fresh = [row for row in rows if row["block"] >= written[row["flag"]].get((row["deployment"], row["event_us"]), 0)]
    if fresh:
        conn.execute(frozen_blocks.insert(), [dict(row) for row in fresh])


def runs(conn: Connection, flag: str, as_of_us: int) -> dict[Event, Run]:
    """What was written by then: (deployment, time of the event) -> its blocks."""
    c = frozen_blocks.c
    query = (
        select(c.deployment, c.event_us, c.failed, c.transfers)
        .where(c.flag == flag, c.recorded_us <= as_of_us)
        .order_by(c.deployment, c.event_us, c.block)
    )
    found: dict[Event, list[tuple[int, int]]] = {}
    for deployment, event_us, failed, transfers in conn.execute(query):
        found.setdefault((deployment, event_us), []).append((failed, transfers))
    return {event: Run(*np.array(rows, dtype=np.float64).T) for event, rows in found.items()}


def _written(conn: Connection, flag: str) -> dict[Event, int]:
    """How many blocks of each event are there; they are written in order."""
    c = frozen_blocks.c
    query = select(c.deployment, c.event_us, func.count()).where(c.flag == flag).group_by(c.deployment, c.event_us)
    return {(deployment, event_us): number for deployment, event_us, number in conn.execute(query)}
