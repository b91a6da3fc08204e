# SPDX-License-Identifier: Apache-2.0
"""A deployment's generations, the oldest first: what each was told, what it moved and what users felt of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from kvflags_collector.store.levels import DAY
from kvflags_collector.web.views.series import FELT, felt

__all__ = ["generations"]

_DAYS = 90
_FIGURES = (
    *("generation", "epoch", "latest", "comparison", "excluded_because", "transfers", "failed", "errors", "bytes"),
    *("descriptors_per_transfer", "post_ms", "transfer_ms", "layout", "exercised", "verdict"),
)
_UNTOLD = dict.fromkeys(("variant", "arm", "reason", "state", "condemned_reason", "revision", "pinned_at", "closed_at"))


def generations(  # noqa: PLR0917 (what is known of one deployment)
    conn: Connection,
    name: str,
    report: Mapping[str, Any],
    told: Mapping[tuple[str, int], Mapping[str, Any]],
    first_us: int,
    now: int,
) -> list[dict[str, Any]]:
    """The report's rows of it. Outcomes are means over the last ninety days, in milliseconds; null where none came."""
    days = range(max(DAY.start(first_us), DAY.start(now) - _DAYS * DAY.length_us), now + 1, DAY.length_us)
    users, nothing = felt(conn, name, days), dict.fromkeys(FELT.values())
    rows = [row for row in report["deployments"] if row["deployment"] == name]
    return [
        {field: row[field] for field in _FIGURES}
        | {**_UNTOLD, **told.get((row["generation"], row["epoch"]), {})}
        | nothing
        | users.get((row["generation"], row["epoch"]), {})
        for row in rows
    ]
