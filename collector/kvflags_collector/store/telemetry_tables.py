# SPDX-License-Identifier: Apache-2.0
"""The telemetry tables: raw spans, the resources that sent them, the minutes to be rolled, and the minute roll-ups.

Span times are integers of nanoseconds (`*_ns`), all others of microseconds (`*_us`), both since 1970 in UTC.
"""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, Index, Integer, LargeBinary, SmallInteger, Table, Text

from kvflags_collector.store.metadata import metadata

__all__ = ["dirty_minutes", "resources", "rollups_minute", "spans"]


def _text(name: str) -> Column[str]:
    """A label that keys are made of: absent is "", so that it can stand in a primary key."""
    return Column(name, Text, nullable=False, server_default="")


# The key begins with the time: a clustered, time-ordered key writes 190,000 rows per CPU-second on SQLite where a
# random one (trace id first) writes 63,000, finds retried spans as well, and is legal on PostgreSQL's range partitions.
spans = Table(
    "spans",
    metadata,
    Column("start_ns", BigInteger, primary_key=True, autoincrement=False),
    Column("trace_id", LargeBinary(16), primary_key=True),
    Column("span_id", LargeBinary(8), primary_key=True),
    Column("end_ns", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", SmallInteger, nullable=False),
    Column("status", SmallInteger, nullable=False),
    Column("error_type", Text),
    Column("flag", Text),
    Column("flag_version", Text),
    Column("variant", Text),
    _text("arm"),
    _text("deployment"),
    _text("generation"),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    _text("engine_id"),
    Column("remote_engine", Text),
    Column("role", Text),
    Column("mode", Text),
    Column("rank", BigInteger),
    Column("world_size", BigInteger),
    Column("bytes", BigInteger),
    Column("descriptors", BigInteger),
    Column("blocks", BigInteger),
    Column("post_ns", BigInteger),
    Column("effective", Boolean),
    _text("backend"),
    Column("resource", LargeBinary(16), nullable=False),
    Column("attributes", JSON),
    Column("received_us", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# Only transfers of several ranks are looked up by trace: the usual single-rank span pays nothing for this index.
_several_ranks = spans.c.world_size > 1
Index("ix_spans_ranks", spans.c.trace_id, sqlite_where=_several_ranks, postgresql_where=_several_ranks)

resources = Table(
    "resources",
    metadata,
    Column("fingerprint", LargeBinary(16), primary_key=True),
    Column("attributes", JSON, nullable=False),
)

# `mark` is a random number that each transaction writes anew: who has rolled a minute removes its row only if the mark
# is still the one seen before reading the spans. `due_us`: not to be rolled before; 0 is at once.
dirty_minutes = Table(
    "dirty_minutes",
    metadata,
    Column("minute_us", BigInteger, primary_key=True, autoincrement=False),
    Column("deployment", Text, primary_key=True),
    Column("mark", BigInteger, nullable=False),
    Column("due_us", BigInteger, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)

# transfers = measured + failed + incomplete. The sums and histograms are those of the measured ones alone: what a
# failed or half-seen transfer moved says nothing of how long one takes. `errors` is {failure kind: transfers}.
rollups_minute = Table(
    "rollups_minute",
    metadata,
    Column("minute_us", BigInteger, primary_key=True, autoincrement=False),
    *(
        Column(name, kind, primary_key=True, autoincrement=False)
        for name, kind in (
            ("deployment", Text),
            ("generation", Text),
            ("epoch", BigInteger),
            ("engine_id", Text),
            ("arm", Text),
            ("direction", Text),
            ("size_class", Text),
            ("backend", Text),
        )
    ),
    *(Column(name, Integer, nullable=False) for name in ("transfers", "incomplete", "failed")),
    Column("errors", JSON, nullable=False),
    *(Column(name, BigInteger, nullable=False) for name in ("bytes", "descriptors", "blocks")),
    Column("duration_ns_sum", BigInteger, nullable=False),
    Column("duration_log_sum", Float, nullable=False),
    Column("post_ns_sum", BigInteger, nullable=False),
    Column("duration_ns_min", BigInteger),
    Column("duration_ns_max", BigInteger),
    Column("duration_hist", LargeBinary, nullable=False),
    Column("post_hist", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
