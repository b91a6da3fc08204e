# SPDX-License-Identifier: Apache-2.0
"""The telemetry as it came: raw spans and the resources that sent them.

Span times are integers of nanoseconds (`*_ns`), all others of microseconds (`*_us`), both since 1970 in UTC.
"""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Column, Index, LargeBinary, SmallInteger, Table, Text

from kvflags_collector.store.metadata import metadata

__all__ = ["ingest_batches", "resources", "spans"]


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
    postgresql_partition_by="RANGE (start_ns)",
)

# Only transfers of several ranks are looked up by trace: the usual single-rank span pays nothing for this index.
_several_ranks = spans.c.world_size > 1
Index("ix_spans_ranks", spans.c.trace_id, sqlite_where=_several_ranks, postgresql_where=_several_ranks)
# Spans come nearly in order of their start, so a few KB find the pages of a minute; the key's index has an entry for
# each span and is seldom in memory.
Index("ix_spans_start_ns", spans.c.start_ns, postgresql_using="brin").ddl_if(dialect="postgresql")

resources = Table(
    "resources",
    metadata,
    Column("fingerprint", LargeBinary(16), primary_key=True),
    Column("attributes", JSON, nullable=False),
    # When it came last, to the day: who it belongs to is known until then, and its spans are gone some time after.
    Column("seen_us", BigInteger, nullable=False, server_default="0", index=True),
)

# Of each request stored lately its hash.
ingest_batches = Table(
    "ingest_batches",
    metadata,
    Column("digest", LargeBinary(16), primary_key=True),
    Column("received_us", BigInteger, nullable=False, index=True),
    sqlite_with_rowid=False,
)
