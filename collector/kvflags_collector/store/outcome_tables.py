# SPDX-License-Identifier: Apache-2.0
"""What users feel, by the hour and the day, and what engines report as events. Times in microseconds, UTC."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Index, LargeBinary, Table, Text

from kvflags_collector.store.metadata import metadata

__all__ = ["KEY", "events", "outcomes_day", "outcomes_hour"]

# What an outcome is kept by, beside its hour or day.
KEY = ("deployment", "generation", "epoch", "engine_id", "arm", "instrument")


def _key(time: str) -> list[Column[Any]]:
    kinds = {time: BigInteger, **dict.fromkeys(KEY, Text), "epoch": BigInteger}
    return [Column(name, kind, primary_key=True, autoincrement=False) for name, kind in kinds.items()]


def _values() -> list[Column[Any]]:
    return [
        Column("points", BigInteger, nullable=False, server_default="0"),
        Column("count", BigInteger, nullable=False, server_default="0"),
        Column("sum_micro", BigInteger, nullable=False, server_default="0"),
        Column("hist", LargeBinary),
    ]


# points: exports merged. count and sum_micro: of the values, in 10^-6 of the instrument's unit: integers, so that the
# order in which exports come makes no difference. hist: of instruments that are histograms, see `store.histogram`.
# seen: 8 bytes for each point that its engine dates within this hour, ascending, so that one sent again is known. Where
# a clock is wrong by hours that may be another hour than the one it counts in, and a row may have nothing but `seen`.
outcomes_hour = Table(
    "outcomes_hour", metadata, *_key("hour_us"), *_values(), Column("seen", LargeBinary), sqlite_with_rowid=False
)
outcomes_day = Table("outcomes_day", metadata, *_key("day_us"), *_values(), sqlite_with_rowid=False)

# fingerprint: of the whole record, so that one sent again is the same row.
events = Table(
    "events",
    metadata,
    Column("time_us", BigInteger, primary_key=True, autoincrement=False),
    Column("fingerprint", LargeBinary(16), primary_key=True),
    Column("name", Text, nullable=False),
    *(Column(name, Text, nullable=False, server_default="") for name in ("deployment", "generation")),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    Column("engine_id", Text, nullable=False, server_default=""),
    Column("rank", BigInteger, nullable=False, server_default="0"),
    Column("attributes", JSON, nullable=False),
    Column("received_us", BigInteger, nullable=False),
    Index(None, "deployment", "time_us"),
    sqlite_with_rowid=False,
)
