# SPDX-License-Identifier: Apache-2.0
"""A flag as it stood at a past time, from what is kept for good: revisions, the ledger, frozen events, whole days.

What has no history is not guessed at: `UNKNOWN` says what a report of the past leaves out.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from kvflags.errors import ErrorCode, NotFound
from kvflags.flags import Flag, PinState
from kvflags_collector.judge import layout
from kvflags_collector.judge.generations import Generation
from kvflags_collector.store.control_tables import flag_revisions, pins
from kvflags_collector.times import SECOND, rfc3339

__all__ = ["UNKNOWN", "days_until_us", "flag_at", "generations_at"]

# A day takes what comes late for another, and then changes no more.
_FREEZES_US = 2 * 86_400 * SECOND

UNKNOWN = (
    "layouts, releases and refusals of engines, hence whether the treatment took hold, coverage and the predicate",
    "whether the arms were as large as drawn and fell silent alike",
    "declared criteria, and what engines dropped or expired",
    "when something was taken out of the comparison: what is out by now is out of the past too",
)


def flag_at(conn: Connection, key: str, as_of_us: int) -> Flag:
    """Its last revision by then. NotFound (`unknown_flag`) where there was none."""
    r = flag_revisions.c
    query = select(r.document).where(r.key == key, r.recorded_us <= as_of_us).order_by(r.revision.desc()).limit(1)
    document = conn.scalar(query)
    if document is None:
        message = f"there was no flag {key!r} at {rfc3339(as_of_us)}"
        raise NotFound(message, hint=f"see `kvflags rollout history {key}`", code=ErrorCode.UNKNOWN_FLAG)
    return Flag.from_json(document)


def generations_at(conn: Connection, key: str, as_of_us: int) -> list[Generation]:
    """Those that were pinned by then, by deployment, the oldest first; of their engines nothing is said."""
    p = pins.c
    query = select(pins).where(p.flag == key, p.pinned_us <= as_of_us).order_by(p.deployment, p.pinned_us, p.id)
    found = []
    for row in conn.execute(query).mappings():
        over = row["closed_us"] is not None and row["closed_us"] <= as_of_us
        state = PinState.CLOSED if over else PinState.PINNED
        pin = {**row, "state": state.value, "closed_us": row["closed_us"] if over else None, "condemned_reason": None}
        found.append(Generation(deployment=row["deployment"], generation=row["generation"], pin=pin))
    for one in {one.deployment: one for one in found}.values():
        one.latest = True
    layout.leave_out(found)
    return found


def days_until_us(as_of_us: int) -> int:
    """Days that begin before it were frozen by then."""
    return as_of_us - _FREEZES_US + 1
