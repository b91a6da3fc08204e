# SPDX-License-Identifier: Apache-2.0
"""The table of tokens. The secret itself is stored nowhere: `hash` is its SHA-256. Rows are kept for the audit."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, LargeBinary, String, Table

from kvflags_collector.store.metadata import metadata

__all__ = ["tokens"]

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("scope", String(16), nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("author", String(200), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger),
    Column("revoked_us", BigInteger),
    Column("revoked_by", String(200)),
)
