# SPDX-License-Identifier: Apache-2.0
"""Databases for tests, of both kinds, made in an instant: each is a copy of one that was migrated once."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from postgres_server import Server
from sqlalchemy import event

from kvflags_collector.store.database import Database

__all__ = ["Databases", "OnPostgreSQL", "OnSQLite", "opened", "stalled"]

_names = itertools.count(1)


class Databases(Protocol):
    """`new` gives the URL of a database nobody else has: at our revision, or with nothing in it; `copy`, one with all
    that is in another, which nobody may have open.
    """

    kind: str

    def new(self, *, migrated: bool = True) -> str: ...

    def copy(self, url: str) -> str: ...

    def drop(self, url: str) -> None: ...


def opened(url: str) -> Database:
    """For tests that are not about power cuts: hundreds that each sync the disk hold up everybody."""
    db = Database(url)
    if db.engine.dialect.name == "sqlite":
        event.listen(db.engine, "connect", lambda conn, _: conn.execute("PRAGMA synchronous = OFF"))
        db.engine.dispose()
    return db


@contextmanager
def stalled(db: Database) -> Iterator[None]:
    """Meanwhile nothing can be stored, neither spans nor what concerns the ledger."""
    with db.write() as conn:
        if db.engine.dialect.name == "postgresql":
            conn.exec_driver_sql("LOCK TABLE spans, resources")
        yield


class OnSQLite:
    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._template = folder / "template.db"
        Database(f"sqlite:///{self._template}", upgrade=True).close()

    def new(self, *, migrated: bool = True) -> str:
        path = self._folder / f"{next(_names)}.db"
        if migrated:
            shutil.copy(self._template, path)
        return f"sqlite:///{path}"

    def copy(self, url: str) -> str:
        made = self.new(migrated=False)
        shutil.copy(_path(url), _path(made))
        return made

    def drop(self, url: str) -> None:
        path = _path(url)
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink()


class OnPostgreSQL:
    kind = "postgresql"

    def __init__(self, server: Server) -> None:
        self._server = server
        server.execute("CREATE DATABASE template")
        Database(server.url("template"), upgrade=True).close()

    def new(self, *, migrated: bool = True) -> str:
        return self._made("template" if migrated else "template0")

    def copy(self, url: str) -> str:
        return self._made(_name(url))

    def drop(self, url: str) -> None:
        self._server.execute(f"DROP DATABASE {_name(url)} WITH (FORCE)")

    def _made(self, template: str) -> str:
        name = f"t{next(_names)}"
        self._server.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self._server.url(name)


def _path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def _name(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]
