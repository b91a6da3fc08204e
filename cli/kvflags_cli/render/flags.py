# SPDX-License-Identifier: Apache-2.0
"""Views of flags: the list, and one with its targets and settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import RenderableType

from kvflags.flags import BUCKETS
from kvflags_cli.render.graduation import expiry
from kvflags_cli.render.numbers import ABSENT, moment, percent, span
from kvflags_cli.render.tables import pairs, table
from kvflags_cli.render.words import phase, switch

__all__ = ["changes", "flag", "flags", "target", "validation"]

Json = dict[str, Any]


def flags(items: list[Json]) -> Iterable[RenderableType]:
    if not items:
        return ["No flags yet. Create one: kvflags flags create KEY --feature cross_layer_blocks"]
    rows = [
        (
            item["key"],
            item["feature"],
            phase(item["phase"]),
            target(item["target"]),
            str(item["revision"]),
            expiry(item["expires"], expired=item["expired"]) if item["expires"] else ABSENT,
        )
        for item in items
    ]
    return [table(("KEY", "FEATURE", "PHASE", "TARGET", ">REVISION", "EXPIRES"), rows)]


def flag(item: Json) -> Iterator[RenderableType]:
    yield pairs(
        [
            ("flag", item["key"]),
            ("feature", item["feature"]),
            ("phase", phase(item["phase"])),
            ("kill switch", switch(item["kill_switch"])),
            ("target", target(item["target"])),
            *((f"target on {backend}", target(one)) for backend, one in sorted(item["overrides"].items())),
            ("enrolment", percent(item["enrolment"] / BUCKETS)),
            ("holdback", percent(item["holdback"] / BUCKETS)),
            ("baseline", span(item["baseline_s"])),
            ("quiet", span(item["quiet_s"])),
            *(("criterion", text) for text in item["criteria"]),
            *([("expires", expiry(item["expires"], expired=item["expired"]))] if item["expires"] else []),
            ("revision", str(item["revision"])),
            ("last change", _last_change(item)),
        ]
    )


def changes(items: list[Json]) -> Iterator[RenderableType]:
    """What applying files did, or would do."""
    for item in items:
        did = "would change" if item["dry_run"] else f"revision {item['revision']}"
        yield f"{item['key']}: {did if item['diff'] else 'nothing to do'}"
        yield from (f"  {one['field']}: {_plain(one['was'])} -> {_plain(one['now'])}" for one in item["diff"])


def validation(items: list[Json]) -> Iterable[RenderableType]:
    found = [f"{one['file']}: {one['where'] or 'document'}: {one['says']}" for one in items]
    return found or ["Every flag is as it should be."]


def _plain(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _last_change(item: Json) -> str:
    change = item["last_change"]
    return f"{moment(item['updated_at'])} {change['action']} by {change['author']}: {change['reason']}"


def target(one: Json | None) -> str:
    """`25%` or `2 deployments`."""
    if not one:
        return ABSENT
    if one["share"] is not None:
        return f"{one['share'] * 100 / BUCKETS:g}%"
    return f"{one['count']} deployment" + ("" if one["count"] == 1 else "s")
