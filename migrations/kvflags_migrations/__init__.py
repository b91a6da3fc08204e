# SPDX-License-Identifier: Apache-2.0
"""Alembic, driven from Python: no alembic.ini, so that `kvflags db` works from a wheel. Tables are in `versions/`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine

from kvflags.errors import ErrorCode, OperatorError, UsageError
from kvflags_collector.store import locks
from kvflags_collector.store.connect import exclusive, is_new, opened, writing

__all__ = ["check", "check_engine", "current", "downgrade", "head", "upgrade", "upgrade_engine"]


def head() -> str:
    """The revision that this release works with."""
    return _line()[0]


def upgrade(url: str, revision: str = "head") -> str:
    """Bring the database up to `revision`, creating it if need be; returns where it now is.

    Refused while an SQLite file is served. Collectors on a PostgreSQL go on: at a revision that is newer than theirs
    they are not ready any more, and are to be replaced.
    """
    with exclusive(url), opened(url) as engine:
        upgrade_engine(engine, revision)
        return _found(engine) or ""


def downgrade(url: str, revision: str) -> str | None:
    """Take the database down to `revision` ("base": empty); data of later ones is lost. Refused as `upgrade` is."""
    with exclusive(url), opened(url) as engine:
        _run(engine, command.downgrade, revision)
        return _found(engine)


def current(url: str) -> str | None:
    """The database's revision, None where it has none. Takes no lock."""
    with opened(url) as engine:
        if is_new(engine):
            return None
        with engine.connect() as conn:
            return _current(conn)


def check(url: str) -> None:
    """OperatorError `database_revision` unless the database is at the head. Takes no lock."""
    with opened(url) as engine:
        check_engine(engine)


def upgrade_engine(engine: Engine, revision: str = "head") -> None:
    """As `upgrade`, for a caller that holds the database already."""
    is_new(engine)  # says what is wrong with an address before anything is made there
    _run(engine, command.upgrade, revision)


def check_engine(engine: Engine) -> None:
    """As `check`, for a caller that holds the database already."""
    found = _found(engine)
    if found != head():
        message = f"the database is at revision {found or 'none'}, this kvflags needs {head()}"
        raise _refusal(message, "run `kvflags db upgrade`")


def _found(engine: Engine) -> str | None:
    if is_new(engine):
        return None
    with engine.connect() as conn:
        return _known(conn)


def _known(conn: Connection) -> str | None:
    """The revision, None for a database without tables; refuses one that is newer than us, or not ours at all."""
    names = conn.dialect.get_table_names(conn)
    if names and "alembic_version" not in names:
        raise _refusal("this database is not ours", "give --db a new one")
    found = _current(conn) if names else None
    if found is not None and found not in _line():
        message = f"the database is at revision {found}, which this kvflags does not know"
        raise _refusal(message, "install the kvflags that wrote it")
    return found


def _refusal(message: str, hint: str) -> OperatorError:
    return OperatorError(message, hint=hint, code=ErrorCode.DATABASE_REVISION)


def _current(conn: Connection) -> str | None:
    return MigrationContext.configure(conn).get_current_revision()


def _run(engine: Engine, step: Callable[[Config, str], None], revision: str) -> None:
    """One transaction for the whole way: a migration that fails half-way leaves the database as it was."""
    config = _config()
    try:
        with writing(engine) as conn:
            # Two processes that migrate at once: the second waits, looks then, and finds nothing left to do.
            locks.once(conn, "migrations")
            _known(conn)
            config.attributes["connection"] = conn
            step(config, revision)
    except CommandError as error:
        raise UsageError(f"no way to revision {revision!r}: {error}", hint="see `kvflags db current`") from error


def _config() -> Config:
    config = Config()
    # A percent sign in the path of an environment would be read as an interpolation.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config


@cache
def _line() -> tuple[str, ...]:
    """All revisions, the newest first. Reading them takes tens of ms, and readiness asks every few seconds."""
    return tuple(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())
