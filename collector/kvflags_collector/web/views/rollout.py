# SPDX-License-Identifier: Apache-2.0
"""The page of one rollout, schema `kvflags.page.rollout/1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection

from kvflags_collector.feedback import report
from kvflags_collector.feedback.signals import signals, summary
from kvflags_collector.rollout import flags, ramp, treated
from kvflags_collector.rollout.graduation import graduation
from kvflags_collector.store.database import Database
from kvflags_collector.web.asked import Asked
from kvflags_collector.web.views import actions, effects, members, timeline
from kvflags_collector.web.views.banner import banner
from kvflags_collector.web.views.exposure import exposure
from kvflags_collector.web.views.health import health, trusted
from kvflags_collector.web.views.version import version, without

__all__ = ["SCHEMA", "Evidence", "gather", "page"]

SCHEMA = "kvflags.page.rollout/1"
_FEEDBACK = 20
# When a report was made, and the command that makes it again as of then: news to nobody.
_WHEN = ("generated_at", "fresh_as_of", "reproduce")
# What is read at each look, beside the evidence.
_NOW = ("flag", "banner", "actions", "ramp", "health", "timeline", "feedback")
_FLAG = ("key", "feature", "phase", "revision", "kill_switch", "target", "expires", "criteria", "created_at")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What takes long to read, and is shared by everybody who looks: the report, the fleet, and exposure over time.

    version: of what it says, which stays the same while only time goes on.
    """

    report: Mapping[str, Any]
    members: Sequence[Mapping[str, Any]]
    exposure: Mapping[str, Any]
    version: str


def gather(db: Database, key: str, now: int) -> Evidence:
    """The evidence at `now` (microseconds). Blocks for as long as a report takes. NotFound for an unknown key."""
    found = report.build(db, key, now)
    with db.read() as conn:
        flag = flags.get(conn, key)
        rows, over_time = members.members(conn, flag, found, now), exposure(conn, key, now)
    return Evidence(found, rows, over_time, _version(found, rows, over_time))


def page(conn: Connection, key: str, evidence: Evidence, asked: Asked, now: int) -> dict[str, Any]:
    """The document: the evidence beside what was decided since, which is read now. NotFound for an unknown key."""
    flag, document = flags.shown(conn, key, now), flags.get(conn, key)
    found = evidence.report
    steps = ramp.shown(conn, document, now)
    on = len(treated.living(conn, key, now))
    feedback = summary(signals(conn, key, now))
    said: dict[str, Any] = {
        "schema": SCHEMA,
        "generated_at": found["generated_at"],
        "fresh_as_of": found["fresh_as_of"],
        "asked": asdict(asked),
        "flag": {name: flag[name] for name in _FLAG},
        "banner": banner(found, flag, on),
        "actions": actions.actions(flag, steps, found["verdict"]["state"]),
        "ramp": steps,
        "graduation": graduation(conn, document, now, found["verdict"]["scope"]),
        "realised": _realised(evidence.members),
        "trusted": trusted(found),
        "health": health(found, evidence.members),
        "coverage": found["coverage"],
        "exposure": evidence.exposure,
        "outcomes": effects.outcomes(found),
        "forest": effects.forest(found, asked.outcome),
        "arms": found["arms"],
        "errors": found["errors"],
        "replacing": members.replacing(evidence.members),
        "deployments": members.table(evidence.members, asked),
        "alarms": [one for one in found["alarms"] if one["ended_at"] is None],
        "timeline": timeline.timeline(conn, key, found),
        "feedback": feedback | {"total": len(feedback["items"]), "items": feedback["items"][:_FEEDBACK]},
    }
    return said | {"version": version(evidence.version, *(said[name] for name in _NOW))}


def _version(found: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], over_time: Mapping[str, Any]) -> str:
    """Pages show when an engine was heard to the minute, and where the chart is sampled moves on with every look."""
    heard = [{**row, "last_seen_at": (row["last_seen_at"] or "")[:16]} for row in rows]
    today = [without(point, "at") for point in over_time["points"][-1:]]
    return version(without(found, *_WHEN), heard, today, over_time["marks"])


def _realised(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the target has come to, in deployments; `share` null while nobody is in an arm."""
    arms = [row["arm"] for row in rows if row["assigned"]]
    treated_now = arms.count("treatment")
    return {
        "treated": treated_now,
        "control": len(arms) - treated_now,
        "share": treated_now / len(arms) if arms else None,
    }
