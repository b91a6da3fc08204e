# SPDX-License-Identifier: Apache-2.0
"""The roll-ups' tables: minutes to months, what of them is to be made anew, and what heartbeats tell of time.

Times are UTC in integer microseconds (`*_us`), durations in nanoseconds (`*_ns`). Who reads them: `store.levels`.
"""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, Float, Index, LargeBinary, Table, Text

from kvflags_collector.store.metadata import metadata

__all__ = [
    "clock_skews",
    "dirty_days",
    "dirty_hours",
    "dirty_minutes",
    "dirty_months",
    "presence",
    "rollups_day",
    "rollups_hour",
    "rollups_minute",
    "rollups_month",
]

_INTEGERS = ("bytes", "descriptors", "blocks", "duration_ns_sum", "post_ns_sum")


def _key(*columns: tuple[str, type[Text] | type[BigInteger]]) -> list[Column[object]]:
    return [Column(name, kind, primary_key=True, autoincrement=False) for name, kind in columns]


# transfers = measured + failed + incomplete, each transfer weighed by what its sampling stands for; `seen` counts the
# same ones unweighed. The sums and histograms are those of the measured ones alone: what a failed or half-seen transfer
# moved says nothing of how long one takes. `errors` is {failure kind: transfers}. `late`: spans that came after their
# day was frozen, and count nowhere else. With a rowid, unlike the others: of a table without one SQLite keeps a quarter
# of a page in place, so that each row with its histograms (1.2 KB) would take a page of its own, 4.5 KB instead of 1.4.
def _rollups(name: str, time: str) -> Table:
    return Table(
        name,
        metadata,
        *_key((time, BigInteger), ("deployment", Text), ("generation", Text), ("epoch", BigInteger)),
        *_key(*((label, Text) for label in ("engine_id", "arm", "direction", "size_class", "backend"))),
        *(Column(n, BigInteger, nullable=False) for n in ("seen", "transfers", "incomplete", "failed", "late")),
        Column("errors", JSON, nullable=False),
        *(Column(n, BigInteger, nullable=False) for n in _INTEGERS),
        *(Column(f"duration_{n}_sum", Float, nullable=False) for n in ("sq", "log", "log_sq")),
        *(Column(f"duration_ns_{n}", BigInteger) for n in ("min", "max")),
        *(Column(n, LargeBinary, nullable=False) for n in ("duration_hist", "post_hist")),
    )


# `mark` is a random number that each transaction writes anew: who has made a part anew removes its row only if the mark
# is still the one seen before reading what it is made of. `due_us`: not before; 0 is at once.
def _dirty(name: str, time: str) -> Table:
    return Table(
        name,
        metadata,
        *_key((time, BigInteger), ("deployment", Text)),
        Column("mark", BigInteger, nullable=False),
        Column("due_us", BigInteger, nullable=False, server_default="0"),
        sqlite_with_rowid=False,
    )


rollups_minute, dirty_minutes = _rollups("rollups_minute", "minute_us"), _dirty("dirty_minutes", "minute_us")
rollups_hour, dirty_hours = _rollups("rollups_hour", "hour_us"), _dirty("dirty_hours", "hour_us")
rollups_day, dirty_days = _rollups("rollups_day", "day_us"), _dirty("dirty_days", "day_us")
rollups_month, dirty_months = _rollups("rollups_month", "month_us"), _dirty("dirty_months", "month_us")
# What months leave out, and a report finds by itself.
_UNDECIDED = rollups_day.c.epoch == 0
Index("ix_rollups_day_undecided", rollups_day.c.day_us, sqlite_where=_UNDECIDED, postgresql_where=_UNDECIDED)

# One row for each engine and hour of the collector's clock with a heartbeat in it. Bit k of `minutes`: one came in
# minute k. `starts`: registrations under which the engine was first heard in this hour.
presence = Table(
    "presence",
    metadata,
    *_key(("hour_us", BigInteger), ("deployment", Text), ("generation", Text), ("engine_id", Text)),
    *(Column(name, BigInteger, nullable=False) for name in ("minutes", "starts")),
    sqlite_with_rowid=False,
)

# How far an engine's clock is ahead (behind: negative), for its spans received from `since_us` on, until its next row.
# Engines whose clock is right have none. Append-only, so that an hour rolled again later is corrected as it was before.
clock_skews = Table(
    "clock_skews",
    metadata,
    *_key(("engine_id", Text), ("since_us", BigInteger)),
    Column("deployment", Text, nullable=False),
    Column("skew_us", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
Index("ix_clock_skews_deployment", clock_skews.c.deployment)
