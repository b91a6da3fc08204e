# SPDX-License-Identifier: Apache-2.0
"""Tokens in the database: made, listed, revoked. Any number may live under one name, so that one follows another."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from sqlalchemy import Connection, Row, insert, or_, select, update

from kvflags.errors import ErrorCode, NotFound, UsageError
from kvflags_collector.access.scopes import Scope
from kvflags_collector.store.places import Keyed, Place
from kvflags_collector.store.token_tables import tokens
from kvflags_collector.times import SECOND, rfc3339

__all__ = ["create", "hashed", "listing", "live", "revoke"]

# What secret scanners find a leaked token by.
_PREFIX = "kvf_"
_LONGEST_S = 10 * 366 * 86_400


def hashed(token: str) -> bytes:
    """What is stored. No salt and no slow hash: of 256 random bits there is nothing to guess."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def create(
    conn: Connection, *, name: str, scope: Scope, author: str, now: int, expires_s: float | None = None
) -> dict[str, Any]:
    """A new token; the answer is the only place where its secret (`token`) ever stands. `now` in microseconds.

    UsageError: an expiry that is not within ten years from now.
    """
    if expires_s is not None and not 0 < expires_s <= _LONGEST_S:
        raise UsageError("a token expires within ten years from now", hint="such as --expires 90d, or without it never")
    token = _PREFIX + secrets.token_urlsafe(32)
    row = {
        "id": secrets.token_hex(4),
        "name": name,
        "scope": scope.value,
        "hash": hashed(token),
        "author": author,
        "created_us": now,
        "expires_us": None if expires_s is None else now + round(expires_s * SECOND),
    }
    conn.execute(insert(tokens), row)
    return _shown(_row(conn, str(row["id"])), now) | {"token": token}


def listing(conn: Connection, now: int, place: Place) -> list[Keyed]:
    """The tokens from a place on, without their secrets, the newest first; also those that have ended."""
    rows = conn.execute(place.falling(select(tokens), tokens.c.created_us, tokens.c.id))
    return [((row.created_us, row.id), _shown(row, now)) for row in rows]


def revoke(conn: Connection, token_id: str, *, author: str, now: int) -> dict[str, Any]:
    """End a token for good; one that has ended already stays as it is. NotFound for an id that is none."""
    _row(conn, token_id)
    standing = (tokens.c.id == token_id, tokens.c.revoked_us.is_(None))
    conn.execute(update(tokens).where(*standing).values(revoked_us=now, revoked_by=author))
    return _shown(_row(conn, token_id), now)


def live(conn: Connection, now: int) -> list[Row[Any]]:
    """The rows of tokens that are neither revoked nor expired."""
    lasting = or_(tokens.c.expires_us.is_(None), tokens.c.expires_us > now)
    return list(conn.execute(select(tokens).where(tokens.c.revoked_us.is_(None), lasting)))


def _row(conn: Connection, token_id: str) -> Row[Any]:
    row = conn.execute(select(tokens).where(tokens.c.id == token_id)).first()
    if row is None:
        raise NotFound(f"no token {token_id}", hint="see `kvflags tokens list`", code=ErrorCode.UNKNOWN_TOKEN)
    return row


def _shown(row: Row[Any], now: int) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "scope": row.scope,
        "state": _state(row, now),
        "author": row.author,
        "created_at": rfc3339(row.created_us),
        "expires_at": rfc3339(row.expires_us),
        "revoked_at": rfc3339(row.revoked_us),
        "revoked_by": row.revoked_by,
    }


def _state(row: Row[Any], now: int) -> str:
    if row.revoked_us is not None:
        return "revoked"
    return "expired" if row.expires_us is not None and row.expires_us <= now else "live"
