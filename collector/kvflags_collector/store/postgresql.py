# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL: a server that several collectors share. The only module that knows its sessions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, Engine, create_engine, event

from kvflags.errors import OperatorError

__all__ = ["SNAPSHOT", "engine_for", "size", "vacuum"]

# Execution options of a transaction that reads: one state throughout, and nothing written by mistake.
SNAPSHOT: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}

# A dead host is noticed within 10 s, as an export gives up; libpq's own defaults are minutes. Read-write: of several
# hosts in the URL, the primary.
_CONNECT = {
    "application_name": "kvflags",
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "target_session_attrs": "read-write",
}

# A role or database may have it off, and then a crash of the server loses what was acknowledged. Stronger is kept.
_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"


def engine_for(url: URL, **options: Any) -> Engine:  # noqa: ANN401 - those of create_engine
    """An engine on this server; opens nothing yet. OperatorError without the driver.

    READ COMMITTED: under the locks of `locks` each statement must see what their last holder committed, and the
    snapshot of REPEATABLE READ would be as old as the wait for them.
    """
    session = {name: value for name, value in _CONNECT.items() if name not in url.query}
    try:
        # Pre-ping: a server that restarted costs nobody a failed request.
        engine = create_engine(
            url, **options, connect_args=session, isolation_level="READ COMMITTED", pool_pre_ping=True
        )
    except ModuleNotFoundError as error:
        raise OperatorError(
            f"the driver for PostgreSQL is not installed here: {error.name} is missing",
            hint="pip install 'kvflags[postgres]'",
        ) from error
    event.listen(engine, "connect", _on_connect)
    return engine


def size(engine: Engine) -> int:
    """Bytes on disk, without the server's own log."""
    with engine.connect() as conn:
        return int(conn.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())


def vacuum(engine: Engine) -> None:
    """Make room in the tables for what comes, and count what is in them for the planner. Beside those who use them.

    Not FULL, which would lock everybody out: what lies free stays with its table, unless it is at the end.
    """
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.exec_driver_sql("VACUUM (ANALYZE)")


def _on_connect(connection: Any, _: object) -> None:  # noqa: ANN401 - the driver is optional, and so are its types
    from psycopg.types.numeric import IntLoader  # noqa: PLC0415 - the driver is optional

    # No column of ours is numeric: what comes as one is a sum of bigints, and whole.
    connection.adapters.register_loader("numeric", IntLoader)
    connection.cursor().execute(_DURABLE)
    connection.commit()
