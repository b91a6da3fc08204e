# SPDX-License-Identifier: Apache-2.0
"""Raw spans out of the database, as JSON documents in the order of their starts. Beside a collector that serves it.

Read in pieces that are transactions of their own: a single one over millions of spans would keep SQLite's log from
being reset, and PostgreSQL from dropping a day. What is stored meanwhile before the place reached is not in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Engine, Row, func, select, tuple_

from kvflags_collector.store.connect import reading
from kvflags_collector.store.telemetry_tables import resources, spans

__all__ = ["documents", "window"]

# Some 10 MB in memory, and 50 ms.
_PIECE = 5000
_KEY = (spans.c.start_ns, spans.c.trace_id, spans.c.span_id)


def window(engine: Engine, since_ns: int | None = None, until_ns: int | None = None) -> tuple[int, int]:
    """[first, end) in ns: the part of what was asked for in which there are spans; (0, 0) where there are none."""
    within = spans.c.start_ns >= (since_ns or 0)
    if until_ns is not None:
        within &= spans.c.start_ns < until_ns
    with reading(engine) as conn:
        # Two statements: of both at once neither database makes two look-ups in the key.
        first = conn.scalar(select(func.min(spans.c.start_ns)).where(within))
        last = conn.scalar(select(func.max(spans.c.start_ns)).where(within))
    return (0, 0) if first is None or last is None else (first, last + 1)


def documents(engine: Engine, first_ns: int, end_ns: int) -> Iterator[tuple[int, list[str]]]:
    """Pieces of the spans that began in [first, end): where a piece ends, in ns, and its documents, a line each."""
    after: tuple[int, bytes, bytes] | None = None
    while True:
        with reading(engine) as conn:
            rows = _piece(conn, first_ns, end_ns, after)
            resource = _resources(conn, {bytes(row.resource) for row in rows})
        if not rows:
            return
        after = (rows[-1].start_ns, bytes(rows[-1].trace_id), bytes(rows[-1].span_id))
        first_ns = after[0]
        yield first_ns, [_document(row, resource) for row in rows]


def _piece(conn: Connection, first_ns: int, end_ns: int, after: tuple[int, bytes, bytes] | None) -> list[Row[Any]]:
    # Also where `after` says the same: only by a bound on the time does PostgreSQL leave out the days before.
    query = select(spans).where(spans.c.start_ns >= first_ns, spans.c.start_ns < end_ns)
    if after:
        query = query.where(tuple_(*_KEY) > after)
    return list(conn.execute(query.order_by(*_KEY).limit(_PIECE)))


def _resources(conn: Connection, fingerprints: set[bytes]) -> dict[bytes, Any]:
    c = resources.c
    found = conn.execute(select(c.fingerprint, c.attributes).where(c.fingerprint.in_(fingerprints)))
    return {bytes(fingerprint): attributes for fingerprint, attributes in found}


def _document(row: Row[Any], resource: dict[bytes, Any]) -> str:
    """The columns by their names, ids in hex; the resource in full; what a span does not have is left out."""
    said = {name: value for name, value in row._mapping.items() if value not in (None, "")}
    said |= {name: bytes(said[name]).hex() for name in ("trace_id", "span_id")}
    said["resource"] = resource.get(bytes(row.resource), {})
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))
