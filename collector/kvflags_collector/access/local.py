# SPDX-License-Identifier: Apache-2.0
"""The admin's token that a collector on loopback leaves for the command line of the same user on the same machine."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from sqlalchemy import Connection

from kvflags import local_token
from kvflags.files import replace
from kvflags_collector.access import tokens
from kvflags_collector.access.scopes import Scope
from kvflags_collector.store.database import Database

__all__ = ["leave"]

_LONGEST_NAME = 64


def leave(db: Database, path: Path, owner: str, port: int, now: int) -> None:
    """See to it that the file holds an admin's token of this database: the one that it holds already, else a new one,
    named after its owner, in whose stead the last one ends. `now` in microseconds.

    OSError: the file cannot be written; then no token was made.
    """
    there = local_token.read(path).value
    with db.write() as conn:
        if there and _opens(conn, there, now):
            return
        # Several collectors may share a database: each ends only its own.
        author = f"kvflags serve on {socket.gethostname()}:{port}"
        for row in tokens.live(conn, now):
            if row.author == author:
                tokens.revoke(conn, row.id, author=author, now=now)
        made = tokens.create(conn, name=_name(owner), scope=Scope.ADMIN, author=author, now=now)
        replace(path, made["token"] + "\n")


def _opens(conn: Connection, token: str, now: int) -> bool:
    hashed = tokens.hashed(token)
    return any(bytes(row.hash) == hashed and row.scope == Scope.ADMIN for row in tokens.live(conn, now))


def _name(owner: str) -> str:
    """What a token may be called, made of user@host."""
    return re.sub(r"[^A-Za-z0-9._@-]", "-", owner).lstrip("._@-")[:_LONGEST_NAME] or "local"
