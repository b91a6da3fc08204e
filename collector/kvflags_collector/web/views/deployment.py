# SPDX-License-Identifier: Apache-2.0
"""The page of one deployment under one flag, schema `kvflags.page.deployment/1`: what changed for it, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from kvflags.features import FEATURES
from kvflags.flags import Facts, PinState
from kvflags_collector.feedback.signals import signals, summary
from kvflags_collector.rollout import alarms, flags, inventory
from kvflags_collector.rollout.explain import explain
from kvflags_collector.store import control_tables as tables
from kvflags_collector.times import rfc3339
from kvflags_collector.web.views.commands import commands
from kvflags_collector.web.views.generations import generations
from kvflags_collector.web.views.rollout import Evidence
from kvflags_collector.web.views.series import series
from kvflags_collector.web.views.timeline import timeline
from kvflags_collector.web.views.version import version

__all__ = ["SCHEMA", "page"]

SCHEMA = "kvflags.page.deployment/1"
_KNOWN = ("deployment", "first_seen_at", "last_seen_at", "observed_at", "baseline_at", "backends", "roles", "declared")
# Rows of engines: all of the largest deployments, and of the others those of many generations.
_ENGINES = 100
_FEEDBACK = 20


def page(conn: Connection, name: str, key: str | None, evidence: Evidence | None, now: int) -> dict[str, Any]:
    """The document. `key` and `evidence`: None while there is no flag. NotFound for an unknown deployment or flag."""
    known = inventory.deployment(conn, name, now)
    first_us = conn.scalar(select(tables.deployments.c.first_seen_us).where(tables.deployments.c.id == name)) or now
    told = _told(conn, key, name)
    variants = {place: row["variant"] for place, row in told.items()}
    marks = [{"at": row["pinned_at"], "says": f"{place[0]} pinned {row['variant']}"} for place, row in told.items()]
    said: dict[str, Any] = {
        "flags": flags.keys(conn),
        "asked": {"flag": key or ""},
        "deployment": {field: known[field] for field in _KNOWN} | {"live_engines": known["live_engines"]},
        "under": _under(conn, known, key, evidence, now),
        "generations": generations(conn, name, evidence.report, told, first_us, now) if evidence else [],
        "engines": _engines(conn, name, key, now),
        "alarms": [one for one in evidence.report["alarms"] if one["deployment"] == name]
        if evidence
        else alarms.standing(conn, {name}),
        "feedback": _feedback(conn, name, key, now),
        "commands": commands(known, key),
        "timeline": timeline(conn, key, evidence.report, name) if key and evidence else {"total": 0, "items": []},
    }
    drawn = series(conn, name, variants, first_us, now)
    when = {"generated_at": rfc3339(now), "fresh_as_of": evidence.report["fresh_as_of"] if evidence else rfc3339(now)}
    said_by_now = version(evidence.version if evidence else "", {**said, "deployment": _settled(said["deployment"])})
    return {"schema": SCHEMA, **when, **said, "series": drawn, "marks": marks, "version": said_by_now}


def _settled(known: Mapping[str, Any]) -> dict[str, Any]:
    """When it was heard is shown to the minute."""
    return {**known, "last_seen_at": (known["last_seen_at"] or "")[:16]}


def _told(conn: Connection, key: str | None, name: str) -> dict[tuple[str, int], dict[str, Any]]:
    """Its pins by generation and epoch, the oldest first."""
    p = tables.pins.c
    rows = conn.execute(select(tables.pins).where(p.flag == key, p.deployment == name).order_by(p.pinned_us, p.id))
    names = ("variant", "arm", "reason", "state", "condemned_reason", "revision")
    return {
        (row["generation"], row["epoch"]): {field: row[field] for field in names}
        | {"pinned_at": rfc3339(row["pinned_us"]), "closed_at": rfc3339(row["closed_us"])}
        for row in rows.mappings()
    }


def _under(
    conn: Connection, known: Mapping[str, Any], key: str | None, evidence: Evidence | None, now: int
) -> dict[str, Any] | None:
    """How it stands under the flag: the four facts, what decides, and why not; null without a flag."""
    if key is None or evidence is None:
        return None
    name = known["deployment"]
    stands: Mapping[str, Any] = next((one for one in known["flags"] if one["flag"] == key), {})
    row = next((one for one in evidence.members if one["deployment"] == name), {})
    condemned = [pin for pin in stands.get("pins", []) if pin["state"] == PinState.CONDEMNED]
    why = explain(conn, key, name, now)
    return {
        "flag": key,
        "assigned": stands.get("arm"),
        "comparison": stands.get("comparison"),
        "excluded_because": row.get("excluded_because"),
        "eligible": stands.get("eligible"),
        "refusals": stands.get("refusals", []),
        "waiting_for": stands.get("waiting_for"),
        "opted": stands.get("opted"),
        "effective": row.get("effective"),
        "exercised": row.get("exercised"),
        "verdict": row.get("verdict"),
        "to_replace": sum(known["live_generations"].get(pin["generation"], 0) for pin in condemned),
        "generation": why["generation"],
        "won": why["won"],
        "lines": why["lines"],
        "next": why["next"],
    }


def _engines(conn: Connection, name: str, key: str | None, now: int) -> dict[str, Any]:
    """`{total, items}`, the live ones first: each with what it was told, and whether its own facts allow it."""
    r = tables.registrations.c
    told = {row.id: row.told or {} for row in conn.execute(select(r.id, r.told).where(r.deployment == name))}
    feature = FEATURES[flags.get(conn, key).feature] if key else None
    found = inventory.engines(conn, now, name)
    items = [
        {field: one[field] for field in ("engine_id", "generation", "role", "state", "last_seen_at", "layout")}
        | {"exercised": one["exercised"], "dropped": one["dropped"]["spans"], "problems": one["problems"]}
        | {name: one["facts"].get(name) for name in ("vllm", "backend", "gpu", "block_size")}
        | {"told": told.get(one["registration_id"], {}).get(key, {}).get("variant"), "local": one["local"]}
        | {"refusals": [met.says for met in feature.refusals(Facts.from_json(one["facts"]))] if feature else []}
        for one in found[:_ENGINES]
    ]
    for one in items:
        one["last_seen_at"] = (one["last_seen_at"] or "")[:16] + ":00Z"
    return {"total": len(found), "items": items}


def _feedback(conn: Connection, name: str, key: str | None, now: int) -> dict[str, Any]:
    mine = [one for one in signals(conn, key, now) if one["deployment"] == name] if key else []
    found = summary(mine)
    return found | {"total": len(found["items"]), "items": found["items"][:_FEEDBACK]}
