# SPDX-License-Identifier: Apache-2.0
"""What the verdict rests on, written once, and what it came to. Append-only, never expires."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Column, Integer, Table, Text

from kvflags_collector.store.metadata import metadata

__all__ = ["frozen_blocks", "frozen_events", "judgements"]

# event_us: when the generation was pinned. cohort: ramp step and week. left_out: why it does not count, else null.
# measured: {"values": {outcome: log ratio}, "invariants": {name: log ratio}, "days": [before, after] in log,
# "failed", "transfers": blocks of 6 hours, 28 before and 4 for each day after; "levels": {outcome: mean logs before and
# after}; "restart": {"minutes", "transfers", "failed"} of the replacement}; what is not known is null. Older rows
# lack the last two.
frozen_events = Table(
    "frozen_events",
    metadata,
    *(Column(name, Text, primary_key=True) for name in ("flag", "deployment")),
    Column("event_us", BigInteger, primary_key=True, autoincrement=False),
    Column("horizon", Integer, primary_key=True, autoincrement=False),
    Column("generation", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("treated", Boolean, nullable=False),
    Column("cohort", Text, nullable=False),
    Column("stratum", Text, nullable=False),
    Column("left_out", Text),
    Column("measured", JSON, nullable=False),
    Column("recorded_us", BigInteger, nullable=False),
)

# The error guard's blocks of 6 hours: 0 to 27 before the event, 28 to 139 after it. What was not seen adds nothing.
frozen_blocks = Table(
    "frozen_blocks",
    metadata,
    *(Column(name, Text, primary_key=True) for name in ("flag", "deployment")),
    Column("event_us", BigInteger, primary_key=True, autoincrement=False),
    Column("block", Integer, primary_key=True, autoincrement=False),
    *(Column(name, BigInteger, nullable=False) for name in ("failed", "transfers", "recorded_us")),
)

# A row for each change of a flag's verdict. checked_us: until when it was found to stand, the one thing that is ever
# changed. document: {"why", "next", "scope", "returned", "actions"}, see `verdict.actions`.
judgements = Table(
    "judgements",
    metadata,
    Column("flag", Text, primary_key=True),
    Column("recorded_us", BigInteger, primary_key=True, autoincrement=False),
    *(Column(name, Text, nullable=False) for name in ("state", "reason")),
    Column("document", JSON, nullable=False),
    Column("checked_us", BigInteger, nullable=False),
)
