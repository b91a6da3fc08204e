# SPDX-License-Identifier: Apache-2.0
"""The spans that a minute's transfers are made of: those that began in it, and their transfers' other ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, and_, false, literal_column, not_, select

from kvflags.telemetry.attributes import SPAN_NAME
from kvflags_collector.store.levels import MINUTE, batches
from kvflags_collector.store.skew import Clock, clocks
from kvflags_collector.store.telemetry_tables import spans
from kvflags_collector.store.transfers import Rank

__all__ = ["ranks_of"]

_MINUTE_NS = MINUTE.length_us * 1000
# Values bound in one statement; SQLite takes 32,766.
_BATCH = 500
_TRACE_STATE = spans.c.attributes["otel.trace_state"].as_string()
_COLUMNS = [_TRACE_STATE if name == "trace_state" else spans.c[name] for name in Rank._fields]


def ranks_of(conn: Connection, minute_us: int, deployments: Sequence[str]) -> list[Rank]:
    """The transfer spans of a minute, with the ranks of their transfers that stand in other minutes.

    Where an engine's clock is known to be wrong, times are corrected.
    """
    wrong = clocks(conn, deployments)
    wanted = and_(spans.c.name == SPAN_NAME, spans.c.deployment.in_(deployments))
    by_date = _read(conn, and_(wanted, _began_in(minute_us)), wrong)
    ranks = [rank for rank in by_date if rank.start_ns // _MINUTE_NS == minute_us // MINUTE.length_us]
    # Off by less than a minute, a span may have begun in this minute both by its date and in truth: it is here already.
    others = and_(wanted, not_(_began_in(minute_us)))
    for clock in wrong:
        ranks += _read(conn, and_(others, _dated_by(clock), _began_in(minute_us + clock.skew_us)), [clock])
    return ranks + _elsewhere(conn, wanted, ranks, wrong)


def _elsewhere(
    conn: Connection, wanted: ColumnElement[bool], ranks: Sequence[Rank], wrong: Sequence[Clock]
) -> list[Rank]:
    """The ranks of the same transfers that began in other minutes."""
    here = {rank[:3] for rank in ranks}
    found: list[Rank] = []
    for traces in batches(sorted({rank.trace_id for rank in ranks if (rank.world_size or 1) > 1}), _BATCH):
        # Spelled out, not bound: only so does SQLite see that its index of spans with several ranks serves.
        several = spans.c.world_size > literal_column("1")
        found += _read(conn, and_(spans.c.trace_id.in_(traces), several, wanted), wrong)
    return [rank for rank in found if rank[:3] not in here]


def _read(conn: Connection, condition: ColumnElement[bool], wrong: Iterable[Clock]) -> list[Rank]:
    ranks = [Rank._make(row) for row in conn.execute(select(*_COLUMNS).where(condition)).all()]
    return [_corrected(rank, wrong) for rank in ranks] if wrong else ranks


def _corrected(rank: Rank, wrong: Iterable[Clock]) -> Rank:
    for clock in wrong:
        if clock.dates(rank.engine_id, rank.received_us):
            ahead_ns = clock.skew_us * 1000
            return rank._replace(start_ns=rank.start_ns - ahead_ns, end_ns=rank.end_ns - ahead_ns)
    return rank


def _began_in(from_us: int) -> ColumnElement[bool]:
    # A clock that shows the year 1 or 9999 asks for minutes that no span can have, nor any database be asked about.
    first_ns, last_ns = from_us * 1000, from_us * 1000 + _MINUTE_NS - 1
    return spans.c.start_ns.between(first_ns, last_ns) if first_ns >= 0 and last_ns < 1 << 63 else false()


def _dated_by(clock: Clock) -> ColumnElement[bool]:
    since = and_(spans.c.engine_id == clock.engine_id, spans.c.received_us >= clock.since_us)
    return since if clock.until_us == float("inf") else and_(since, spans.c.received_us < int(clock.until_us))
