# SPDX-License-Identifier: Apache-2.0
"""The first page, schema `kvflags.page.index/1`: one row for each rollout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvflags_collector.rollout import flags
from kvflags_collector.store.database import Database
from kvflags_collector.times import rfc3339
from kvflags_collector.web.views import effects
from kvflags_collector.web.views.members import replacing
from kvflags_collector.web.views.rollout import Evidence

__all__ = ["SCHEMA", "page"]

SCHEMA = "kvflags.page.index/1"
_SHOWN = ("key", "feature", "phase", "revision", "kill_switch", "target", "updated_at")


def page(db: Database, evidence: Callable[[str], Evidence], now: int, *, hub: bool = False) -> dict[str, Any]:
    """All flags that are not archived, by key. `hub`: whether there is a page of that name. Blocks as `evidence` does,
    for each."""
    with db.read() as conn:
        known = flags.listing(conn, now)
    rollouts = [_row(flag, evidence(flag["key"])) for flag in known]
    return {"schema": SCHEMA, "generated_at": rfc3339(now), "hub": hub, "rollouts": rollouts}


def _row(flag: Mapping[str, Any], found: Evidence) -> dict[str, Any]:
    """`worst`: the guard that is nearest to its limit or beyond, null before any event."""
    report = found.report
    guards = [one for one in effects.outcomes(report) if one["role"] == "guard"]
    feedback = report["feedback"]
    return {
        "flag": {name: flag[name] for name in _SHOWN},
        "verdict": {name: report["verdict"][name] for name in ("state", "why", "next")},
        "worst": guards[0] if guards else None,
        "effective_share": report["data_health"]["effective_share"],
        "exposure": found.exposure["points"],
        "alarms": sum(one["ended_at"] is None for one in report["alarms"]),
        "replacing": replacing(found.members),
        "feedback": {"positive": feedback["positive"], "negative": feedback["negative"]},
    }
