# SPDX-License-Identifier: Apache-2.0
"""All feedback on a flag, side by side: what was measured, and what people gave. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from kvflags_collector.feedback import given
from kvflags_collector.feedback.document import Feedback, Item
from kvflags_collector.store.control_tables import feedback
from kvflags_collector.times import rfc3339

__all__ = ["signals", "summary"]


def signals(conn: Connection, flag: str, as_of_us: int) -> list[Item]:
    """As it stood at a time, the newest first. Each has an id, a source (`measured` or `given`), a sign and tags."""
    found: list[Any] = [*given.listing(conn, flag, as_of_us), *_measured(conn, flag, as_of_us)]
    return sorted(found, key=lambda one: one["recorded_at"], reverse=True)


def summary(found: Sequence[Item]) -> Feedback:
    """What `signals` gave, counted: `{positive, negative, withdrawn, items}`; what was withdrawn is no item."""
    items = [item for item in found if not item["withdrawn"]]
    signs = [item["sign"] for item in items]
    return {
        "positive": signs.count("positive"),
        "negative": signs.count("negative"),
        "withdrawn": len(found) - len(items),
        "items": items,
    }


def _measured(conn: Connection, flag: str, as_of_us: int) -> list[dict[str, Any]]:
    f = feedback.c
    query = select(feedback).where(f.flag == flag, f.recorded_us <= as_of_us).order_by(f.id.desc())
    names = ("flag", "deployment", "source", "sign", "comment", "author", "generation")
    return [
        {"id": f"m{row['id']}", **{name: row[name] for name in names}}
        | {"tags": [row["tag"]], "recorded_at": rfc3339(row["recorded_us"]), "withdrawn": False}
        for row in conn.execute(query).mappings()
    ]
