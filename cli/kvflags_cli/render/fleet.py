# SPDX-License-Identifier: Apache-2.0
"""Views of what the collector has heard of: deployments, and engines with the layout they really have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import RenderableType

from kvflags_cli.render.numbers import ABSENT, count, moment, yes_no
from kvflags_cli.render.tables import table

__all__ = ["deployments", "engines"]

Json = dict[str, Any]

_NOBODY = "None yet. They appear when an engine with KVFLAGS_COLLECTOR_URL set to this collector starts."


def deployments(items: list[Json]) -> Iterable[RenderableType]:
    rows = [
        (item["deployment"], item.get("observed_generation") or ABSENT, moment(item.get("last_seen_at")))
        for item in items
    ]
    return [table(("~DEPLOYMENT", "GENERATION", "LAST SEEN"), rows) if rows else _NOBODY]


def engines(items: list[Json]) -> Iterable[RenderableType]:
    columns = ("~DEPLOYMENT", "GENERATION", "ROLE", "REQUESTED", "RESOLVED", "EFFECTIVE", ">OK", ">ERRORS", "~ENGINE")
    return [table(columns, map(_engine, items)) if items else _NOBODY]


def _engine(item: Json) -> tuple[str, ...]:
    layout, exercised = item.get("layout") or {}, item.get("exercised") or {}
    return (
        item["deployment"] or "unidentified",
        item["generation"],
        item["role"],
        layout.get("requested") or ABSENT,
        layout.get("resolved") or ABSENT,
        yes_no(layout.get("effective")),
        count(exercised.get("ok")),
        count(exercised.get("errors")),
        item["engine_id"],
    )
