# SPDX-License-Identifier: Apache-2.0
"""The tables of a hub: bundles as they came, and what its operator said of whoever sent them. They never expire."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, Index, Integer, String, Table, Text

from kvflags_collector.store.metadata import metadata

__all__ = ["hub_bundles", "hub_standing"]

# digest: SHA-256 of the bundle's canonical JSON and the key, in hex; the receipt. figures: that of its effects alone,
# which no two fleets have in common. revoked_us: null while it counts; revocation: the signature that took it back.
hub_bundles = Table(
    "hub_bundles",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("key", String(43), nullable=False),
    Column("feature", Text, nullable=False),
    Column("fleet", String(16), nullable=False),
    Column("figures", String(64), nullable=False),
    Column("document", JSON, nullable=False),
    Column("signature", String(86), nullable=False),
    Column("recorded_us", BigInteger, nullable=False),
    Column("revoked_us", BigInteger),
    Column("revocation", String(86)),
    Index(None, "feature", "recorded_us"),
    Index(None, "key"),
)

# Append-only; the last row of a key holds. state: admitted, dismissed or left.
hub_standing = Table(
    "hub_standing",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("key", String(43), nullable=False),
    Column("state", String(16), nullable=False),
    Column("name", Text, nullable=False),
    Column("author", String(200), nullable=False),
    Column("recorded_us", BigInteger, nullable=False),
    Index(None, "key"),
)
