# SPDX-License-Identifier: Apache-2.0
"""The hours around an event as arrays: outcomes, transfers, failures; NaN where no engine was heard.

Only integers are added up, so the order in which they were received leaves no trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, Table, func, select

from kvflags.telemetry.instruments import InstrumentName
from kvflags_collector.judge.moments import Moment
from kvflags_collector.store import presence
from kvflags_collector.store.outcome_tables import outcomes_hour
from kvflags_collector.store.rollup_tables import dirty_hours, dirty_minutes, rollups_hour
from kvflags_collector.times import SECOND
from kvflags_collector.verdict.arrays import Bools, Floats
from kvflags_collector.verdict.events import BEFORE_DAYS

__all__ = ["HOUR_US", "Hours", "Window", "moved", "read", "rolled_up"]

HOUR_US = 3600 * SECOND
# What an engine does while it warms up is neither before nor after.
_WARM_US = HOUR_US // 2
_BEFORE = BEFORE_DAYS * 24
_MOVED = ("size_class", "transfers", "failed", "incomplete", "bytes", "duration_ns_sum", "post_ns_sum")


@dataclass(frozen=True, slots=True)
class Window:
    """The hours of an event: from `start_us` 168 of before, from `after_us` on those after, until `end_us`."""

    moment: Moment
    horizon: int

    @property
    def before_us(self) -> int:
        """Where the hours before the event end."""
        return self.moment.event_us // HOUR_US * HOUR_US

    @property
    def start_us(self) -> int:
        return self.before_us - _BEFORE * HOUR_US

    @property
    def after_us(self) -> int:
        return -(-(self.moment.event_us + _WARM_US) // HOUR_US) * HOUR_US

    @property
    def end_us(self) -> int:
        return self.after_us + self.horizon * 24 * HOUR_US

    @property
    def slots(self) -> int:
        """Of an array over it."""
        return _BEFORE + self.horizon * 24

    def place(self, hour_us: int) -> int | None:
        """Where an hour stands in an array over the window; None where it is neither before nor after."""
        if self.start_us <= hour_us < self.before_us:
            return (hour_us - self.start_us) // HOUR_US
        cut = self.moment.cut_us
        if self.after_us <= hour_us < self.end_us and (cut is None or hour_us + HOUR_US <= cut):
            return _BEFORE + (hour_us - self.after_us) // HOUR_US
        return None

    def slot(self, hour_us: int, generation: str, epoch: int) -> int | None:
        """The same for an hour of an epoch; what runs on from before the event is none of what came after it."""
        slot = self.place(hour_us)
        later = (generation, epoch) in self.moment.after
        return slot if slot is not None and (slot >= _BEFORE) == later else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """(slots,) each: by instrument the sum and the number of its values; transfers with their failures and sizes.

    sizes: class -> (4, slots): measured transfers, bytes, nanoseconds taken, nanoseconds to post.
    """

    sums: dict[str, Floats]
    counts: dict[str, Floats]
    transfers: Floats
    failed: Floats
    sizes: Mapping[str, Floats]


def read(conn: Connection, window: Window) -> Hours:
    """What was stored of a window."""
    sums, counts = ({name.value: np.zeros(window.slots) for name in InstrumentName} for _ in range(2))
    for slot, name, sum_micro, count in _each(conn, window, outcomes_hour, ("instrument", "sum_micro", "count")):
        if name in sums:
            sums[name][slot] += sum_micro / 1e6
            counts[name][slot] += count
    transfers, failed = np.zeros(window.slots), np.zeros(window.slots)
    sizes: dict[str, Floats] = defaultdict(lambda: np.zeros((4, window.slots)))
    for slot, size, number, bad, incomplete, *rest in _each(conn, window, rollups_hour, _MOVED):
        transfers[slot] += number
        failed[slot] += bad
        sizes[size][:, slot] += (number - bad - incomplete, *rest)
    unheard = ~_heard(conn, window) & (transfers == 0)
    transfers[unheard], failed[unheard] = np.nan, np.nan
    return Hours(sums=sums, counts=counts, transfers=transfers, failed=failed, sizes=sizes)


def moved(conn: Connection, window: Window) -> tuple[Floats, Floats]:
    """(slots,) each: transfers and those that failed; 0 where nothing was seen."""
    transfers, failed = np.zeros(window.slots), np.zeros(window.slots)
    for slot, _, number, bad in _each(conn, window, rollups_hour, ("size_class", "transfers", "failed")):
        transfers[slot] += number
        failed[slot] += bad
    return transfers, failed


def rolled_up(conn: Connection, deployment: str, until_us: int) -> bool:
    """Whether nothing of the deployment before that time waits to be rolled up."""
    for table in (dirty_minutes, dirty_hours):
        time = table.c[0]
        waits = select(time).where(table.c.deployment == deployment, time < until_us).limit(1)
        if conn.execute(waits).first() is not None:
            return False
    return True


def _each(conn: Connection, window: Window, table: Table, names: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """(slot, label, sums over engines ...) of each hour, epoch and label, which is the first name."""
    c = table.c
    keys = (c.hour_us, c.generation, c.epoch, c[names[0]])
    query = (
        select(*keys, *(func.sum(c[name]) for name in names[1:]))
        .where(c.deployment == window.moment.deployment, c.hour_us >= window.start_us, c.hour_us < window.end_us)
        .group_by(*keys)
        .order_by(*keys)
    )
    for hour_us, generation, epoch, label, *sums in conn.execute(query):
        slot = window.slot(hour_us, generation, epoch)
        if slot is not None:
            yield slot, label, *(int(value) for value in sums)


def _heard(conn: Connection, window: Window) -> Bools:
    """(slots,): whether any engine sent a heartbeat in the hour."""
    found = np.zeros(window.slots, dtype=np.bool_)
    for one in presence.heard(conn, [window.moment.deployment], window.start_us, window.end_us):
        slot = window.place(one.hour_us)
        if slot is not None:
            found[slot] = True
    return found
