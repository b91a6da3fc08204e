# SPDX-License-Identifier: Apache-2.0
"""The page of a hub, schema `kvflags.page.hub/1`: what each feature did over organisations, and who is counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from kvflags.features import FEATURES
from kvflags_collector.hub import register
from kvflags_collector.hub.field_report import field_report
from kvflags_collector.times import rfc3339
from kvflags_collector.verdict.organisations import LEAST_ORGANISATIONS
from kvflags_collector.verdict.outcomes import PRIMARY
from kvflags_collector.web.views.version import version

__all__ = ["SCHEMA", "page"]

SCHEMA = "kvflags.page.hub/1"
_WHO = ("organisation", "state", "name", "bundles", "revoked", "first_at", "last_at")
_CHANGE = ("change", "low", "high", "standing")


def page(conn: Connection, *, hub: bool, outcome: str, now: int) -> dict[str, Any]:
    """`features` and `organisations` are empty where this collector is no hub. outcome: of the forest plots. Reads."""
    who = register.listing(conn) if hub else []
    said = {
        "hub": hub,
        "least": LEAST_ORGANISATIONS,
        "features": [_feature(field_report(conn, name), outcome) for name in sorted(FEATURES)] if hub else [],
        "organisations": [{name: one[name] for name in _WHO} for one in who],
    }
    return {"schema": SCHEMA, "generated_at": rfc3339(now), **said, "version": version(said)}


def _feature(report: Mapping[str, Any], asked: str) -> dict[str, Any]:
    """The report, and one of its outcomes stratum by stratum: `{outcome, choices, rows}`."""
    choices = [one["outcome"] for one in report["outcomes"]] or [PRIMARY.value]
    name = asked if asked in choices else choices[0] if PRIMARY.value not in choices else PRIMARY.value
    parts = [{**report, "name": "all strata", "ready": False}, *report["strata"]] if report["fleets"] else []
    rows = [_row(part, name) for part in parts]
    return {"report": dict(report), "forest": {"outcome": name, "choices": choices, "rows": rows}}


def _row(part: Mapping[str, Any], outcome: str) -> dict[str, Any]:
    found = next((one for one in part["outcomes"] if one["outcome"] == outcome), None)
    numbers = {name: part[name] for name in ("name", "organisations", "fleets", "treated", "control", "ready")}
    short = LEAST_ORGANISATIONS - part["organisations"]
    lacks = f"{short} more organisations needed" if short > 0 else None
    return numbers | {"lacks": lacks} | {name: found[name] if found else None for name in _CHANGE}
