# SPDX-License-Identifier: Apache-2.0
"""The first page, schema `kvflags.page.index/1`: one row for each rollout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from kvflags_collector.rollout import flags
from kvflags_collector.times import rfc3339
from kvflags_collector.web.views import effects
from kvflags_collector.web.views.members import replacing
from kvflags_collector.web.views.rollout import Evidence
from kvflags_collector.web.views.version import version

__all__ = ["SCHEMA", "page"]

SCHEMA = "kvflags.page.index/1"
_SHOWN = ("key", "feature", "phase", "revision", "kill_switch", "target", "updated_at")


def page(conn: Connection, evidence: Mapping[str, Evidence], now: int, *, hub: bool = False) -> dict[str, Any]:
    """The flags of which there is evidence, by key. `hub`: whether there is a page of that name. Reads."""
    known = [flag for flag in flags.listing(conn, now) if flag["key"] in evidence]
    rollouts = [_row(flag, evidence[flag["key"]]) for flag in known]
    seen = version(hub, [(one["flag"], evidence[one["flag"]["key"]].version) for one in rollouts])
    return {"schema": SCHEMA, "generated_at": rfc3339(now), "hub": hub, "rollouts": rollouts, "version": seen}


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
