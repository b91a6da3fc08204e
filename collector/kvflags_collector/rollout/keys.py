# SPDX-License-Identifier: Apache-2.0
"""The collector's own key: all collectors of one database share it, and it outlives each of them."""

from __future__ import annotations

from sqlalchemy import Connection, select

from kvflags.signatures import new_key
from kvflags_collector.store import locks
from kvflags_collector.store.control_tables import collector_keys

__all__ = ["private_key"]


def private_key(conn: Connection, now: int) -> bytes:
    """Ed25519, made when first needed. Callers that may be the first hold a write transaction."""
    stored = select(collector_keys.c.private_key).order_by(collector_keys.c.id).limit(1)
    key = conn.scalar(stored)
    if key is None:
        locks.once(conn, "collector_keys")
        key = conn.scalar(stored)
    if key is None:
        key = new_key()
        conn.execute(collector_keys.insert().values(private_key=key, created_us=now))
    return bytes(key)
