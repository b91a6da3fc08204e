# SPDX-License-Identifier: Apache-2.0
"""Alembic, driven from Python: no alembic.ini, so that `kvflags db` works from a wheel. Tables are in `versions/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Engine

from kvflags.errors import ErrorCode, OperatorError, UsageError
from kvflags_collector.store.connect import WRITE, engine_for, exclusive, is_new

__all__ = ["check", "check_engine", "current", "downgrade", "head", "upgrade", "upgrade_engine"]


def head() -> str:
    """The revision that this release works with."""
    return _line()[0]


def upgrade(url: str, revision: str = "head") -> str:
    """Bring the database up to `revision`, creating it if need be; returns where it now is. Refused while served."""
    with exclusive(url), _engine(url) as engine:
        upgrade_engine(engine, revision)
        return _current(engine) or ""


def downgrade(url: str, revision: str) -> str | None:
    """Take the database down to `revision` ("base": empty); data of later revisions is lost. Refused while served."""
    with exclusive(url), _engine(url) as engine:
        _known(engine)
        _run(engine, command.downgrade, revision)
        return _current(engine)


def current(url: str) -> str | None:
    """The database's revision, None where it has none. Takes no lock."""
    with _engine(url) as engine:
        return None if is_new(engine) else _current(engine)


def check(url: str) -> None:
    """OperatorError `database_revision` unless the database is at the head. Takes no lock."""
    with _engine(url) as engine:
        check_engine(engine)


def upgrade_engine(engine: Engine, revision: str = "head") -> None:
    """As `upgrade`, for a caller that holds the database already."""
    if not is_new(engine):
        _known(engine)
    _run(engine, command.upgrade, revision)


def check_engine(engine: Engine) -> None:
    """As `check`, for a caller that holds the database already."""
    found = None if is_new(engine) else _known(engine)
    if found != head():
        raise OperatorError(
            f"the database is at revision {found or 'none'}, this kvflags needs {head()}",
            hint="run `kvflags db upgrade`",
            code=ErrorCode.DATABASE_REVISION,
        )


def _known(engine: Engine) -> str | None:
    """The revision of a database that holds tables; refuses one that is newer than us, or not ours at all."""
    with engine.connect() as conn:
        ours = engine.dialect.has_table(conn, "alembic_version")
    found = _current(engine) if ours else None
    if ours and (found is None or found in _line()):
        return found
    raise OperatorError(
        f"the database is at revision {found}, which this kvflags does not know"
        if ours
        else "this database is not ours",
        hint="install the kvflags that wrote it" if ours else "give --db a new file",
        code=ErrorCode.DATABASE_REVISION,
    )


def _current(engine: Engine) -> str | None:
    with engine.connect() as conn:
        return MigrationContext.configure(conn).get_current_revision()


def _run(engine: Engine, step: Callable[[Config, str], None], revision: str) -> None:
    """One transaction for the whole way: a migration that fails half-way leaves the database as it was."""
    config = _config()
    try:
        with engine.connect() as conn:
            conn.execution_options(**{WRITE: True})
            with conn.begin():
                config.attributes["connection"] = conn
                step(config, revision)
    except CommandError as error:
        raise UsageError(f"no way to revision {revision!r}: {error}", hint="see `kvflags db current`") from error


@contextmanager
def _engine(url: str) -> Iterator[Engine]:
    engine = engine_for(url)
    try:
        yield engine
    finally:
        engine.dispose()


def _config() -> Config:
    config = Config()
    # A percent sign in the path of an environment would be read as an interpolation.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config


@cache
def _line() -> tuple[str, ...]:
    """All revisions, the newest first. Reading them takes tens of ms, and readiness asks every few seconds."""
    return tuple(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())
