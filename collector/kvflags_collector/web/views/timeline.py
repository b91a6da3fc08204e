# SPDX-License-Identifier: Apache-2.0
"""Who did what, when and why: the audit log and the alarms of a flag as one list, the newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from kvflags_collector.rollout import audit

__all__ = ["timeline"]

_SHOWN = 40


def timeline(conn: Connection, flag: str, report: Mapping[str, Any], deployment: str | None = None) -> dict[str, Any]:
    """`{total, items: [{at, what, who, why, where, revision, evidence}]}`, the newest 40; of one deployment, or all.
    Reads."""
    mine = {None, deployment}
    items = [_entry(one) for one in audit.history(conn, flag) if deployment is None or one.get("deployment") in mine]
    items += [_alarm(one) for one in report["alarms"] if deployment is None or one["deployment"] in mine]
    items.sort(key=lambda one: one["at"], reverse=True)
    return {"total": len(items), "items": items[:_SHOWN]}


def _entry(one: Mapping[str, Any]) -> dict[str, Any]:
    where = " ".join(filter(None, (one.get("deployment"), one.get("generation"))))
    return {
        "at": one["recorded_at"],
        "what": one["action"].replace("_", " "),
        "who": one["author"],
        "why": one["reason"],
        "where": where or None,
        "revision": one.get("revision"),
        "evidence": (one.get("evidence") or {}).get("findings") or [],
        "ended_at": None,
    }


def _alarm(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "at": one["first_at"],
        "what": f"alarm: {one['kind'].replace('_', ' ')}",
        "who": "kvflags",
        "why": one["says"],
        "where": f"{one['deployment']} {one['generation']}",
        "revision": None,
        "evidence": [],
        "ended_at": one["ended_at"],
    }
