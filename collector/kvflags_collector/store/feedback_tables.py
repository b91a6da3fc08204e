# SPDX-License-Identifier: Apache-2.0
"""What people said of a flag, as they said it each time, and what canaries found. Append-only: an edit or a withdrawal
is a further revision."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, Float, ForeignKey, Index, Integer, String, Table, Text

from kvflags_collector.store.metadata import metadata

__all__ = ["canaries", "given_feedback"]

# number, revision: which feedback, and which state of it, from 1. action: `give`, `edit` or `withdraw`. sign, tags and
# comment: as of this revision. seen: what was known of the deployment when it was given. reason: null for the first.
given_feedback = Table(
    "given_feedback",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("action", String(16), nullable=False),
    Column("flag", String(64), ForeignKey("flags.key"), nullable=False),
    Column("deployment", String(253), ForeignKey("deployments.id"), nullable=False),
    Column("sign", String(16), nullable=False),
    Column("tags", JSON, nullable=False),
    Column("comment", Text, nullable=False),
    Column("seen", JSON, nullable=False),
    Column("author", String(200), nullable=False),
    Column("reason", Text),
    Column("recorded_us", BigInteger, nullable=False),
    Index(None, "flag"),
)

# epoch: in force when it was told; 0 where nothing was decided. outcome: `match`, `mismatch` or `undecided`. max_delta
# and tolerance: nats; null where nothing was compared.
canaries = Table(
    "canaries",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("deployment", String(253), ForeignKey("deployments.id"), nullable=False),
    Column("generation", String(253), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("compared", Integer, nullable=False),
    Column("mismatched", Integer, nullable=False),
    Column("max_delta", Float),
    Column("tolerance", Float, nullable=False),
    Column("author", String(200), nullable=False),
    Column("recorded_us", BigInteger, nullable=False),
    Index(None, "deployment", "generation", "epoch"),
)
