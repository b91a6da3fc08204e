# SPDX-License-Identifier: Apache-2.0
"""Whether anything was changed since: far cheaper to read than what was changed."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from kvflags_collector.store import control_tables as tables
from kvflags_collector.store.feedback_tables import given_feedback

__all__ = ["changed"]


def changed(conn: Connection) -> tuple[int | None, ...]:
    """Numbers of which one is another after every revision, steering, decision and feedback. Reads."""
    numbers = (
        select(func.count()).select_from(tables.flag_revisions),
        select(func.count()).select_from(given_feedback),
        select(func.max(tables.changes.c.id)),
        select(func.max(tables.feedback.c.id)),
        select(func.max(tables.pins.c.id)),
    )
    return tuple(conn.execute(select(*(one.scalar_subquery() for one in numbers))).one())
