# SPDX-License-Identifier: Apache-2.0
"""What a webhook is told, and how far its delivery is."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, Index, Integer, String, Table, Text

from kvflags_collector.store.metadata import metadata

__all__ = ["webhook_events"]

# id: what it is about, so that the same thing is never told as two. due_us: when it is tried next; null once it was
# delivered (delivered_us) or given up. Rows stay: a row that was told is what keeps it from being told anew.
webhook_events = Table(
    "webhook_events",
    metadata,
    Column("id", String(400), primary_key=True),
    Column("body", JSON, nullable=False),
    Column("recorded_us", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_us", BigInteger),
    Column("delivered_us", BigInteger),
    Column("error", Text),
    Index(None, "due_us"),
)
