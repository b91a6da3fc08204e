# SPDX-License-Identifier: Apache-2.0
"""What is known of a deployment under a flag at the moment somebody says something of it. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, RowMapping, select

from kvflags.errors import ErrorCode, NotFound
from kvflags_collector.judge import strata
from kvflags_collector.store import control_tables as tables

__all__ = ["known"]


def known(conn: Connection, flag: str, deployment: str, now: int) -> dict[str, Any]:
    """Generation, epoch, variant and arm by its latest pin, its live engines, and which releases they run.

    NotFound (`unknown_deployment`) for one that never was heard of. What is not known is null or empty.
    """
    if conn.execute(select(tables.deployments.c.id).where(tables.deployments.c.id == deployment)).first() is None:
        raise NotFound(
            f"there is no deployment {deployment!r}",
            hint="see `kvflags deployments list`",
            code=ErrorCode.UNKNOWN_DEPLOYMENT,
        )
    pin = _pin(conn, flag, deployment)
    generation = pin["generation"] if pin else None
    engines = _engines(conn, deployment, now)
    return {
        "generation": generation,
        **{name: pin[name] if pin else None for name in ("epoch", "variant", "arm")},
        "stratum": strata.read(conn).get((deployment, generation)) if generation else None,
        "engines": [{name: row[name] for name in ("engine_id", "role", "generation", "resolved")} for row in engines],
        "releases": {name: _all(row["facts"].get(name) for row in engines) for name in ("vllm", "nixl")}
        | {"kvflags": _all(row["kvflags"] for row in engines)},
    }


def _pin(conn: Connection, flag: str, deployment: str) -> RowMapping | None:
    p = tables.pins
    mine = (p.c.flag == flag, p.c.deployment == deployment)
    return conn.execute(select(p).where(*mine).order_by(p.c.pinned_us.desc(), p.c.id.desc())).mappings().first()


def _engines(conn: Connection, deployment: str, now: int) -> list[RowMapping]:
    e, r = tables.engines, tables.registrations
    query = (
        select(e, r.c.kvflags)
        .join(r, r.c.id == e.c.registration)
        .where(e.c.deployment == deployment, e.c.lease_until_us > now)
        .order_by(e.c.engine_id)
    )
    return list(conn.execute(query).mappings())


def _all(values: Iterable[str | None]) -> list[str]:
    return sorted({value for value in values if value})
