# SPDX-License-Identifier: Apache-2.0
"""Views of a rollout under way: its status, an explanation, a signed decision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from kvflags_cli.render.flags import target
from kvflags_cli.render.numbers import ABSENT, count, percent
from kvflags_cli.render.tables import heading, pairs, table
from kvflags_cli.render.words import phase

__all__ = ["decision", "explanation", "status"]

Json = dict[str, Any]


def status(document: Json) -> Iterator[RenderableType]:
    flag, realised = document["flag"], document["realised"]
    yield pairs(
        [
            ("flag", flag["key"]),
            ("phase", phase(flag["phase"])),
            ("kill switch", Text("SET", style="red") if flag["kill_switch"] else "not set"),
            ("target", target(document["target"])),
            ("realised", f"{percent(realised['share'])} of the eligible"),
            ("eligible", count(realised["eligible"])),
            ("enrolled", count(realised["enrolled"])),
            ("treated", count(realised["treated"])),
            ("control", count(realised["control"])),
        ]
    )
    yield heading("DEPLOYMENTS")
    yield _deployments(document["deployments"])
    for alarm in document["alarms"]:
        yield Text(f"\n! {alarm['kind']}: {alarm['deployment']} {alarm['generation']}", style="red")


def _deployments(items: list[Json]) -> RenderableType:
    if not items:
        return "None yet. They appear when an engine with this collector's address starts."
    columns = ("~DEPLOYMENT", "ARM", "COMPARISON", "GENERATION", "VARIANT", "STATE", ">ENGINES", ">REPLACE", "~REASON")
    return table(columns, (row for item in items for row in _rows(item)))


def _rows(item: Json) -> Iterator[tuple[str | Text, ...]]:
    """A line per generation; a deployment without a live one has a line of its own."""
    who = (item["deployment"], item["arm"] or ABSENT, item["comparison"] or ABSENT)
    for generation in item["generations"] or [{}]:
        yield (
            *who,
            _generation(generation),
            generation.get("variant") or ABSENT,
            _state(generation.get("state")),
            count(generation.get("live_engines")),
            count(generation.get("to_replace")),
            generation.get("reason") or item["reason"] or ABSENT,
        )


def _generation(one: Json) -> str:
    return f"{one['generation']} #{one['epoch']}" if one else ABSENT


def _state(name: str | None) -> str | Text:
    return Text(name, style="red") if name == "condemned" else (name or ABSENT)


def explanation(document: Json) -> Iterator[RenderableType]:
    yield pairs([("deployment", document["deployment"]), ("generation", document["generation"] or ABSENT)])
    pin = document["pin"]
    if pin:
        yield Text(f"\nPinned: epoch {pin['epoch']} is {pin['variant']} ({pin['reason']}), {pin['state']}.")
        yield Text("A pin outranks everything below, which is what an unpinned generation would be told now.")
    yield heading("PRECEDENCE")
    yield table(
        ("", "LINE", "~OUTCOME"), ((_mark(line["won"]), line["line"], line["outcome"]) for line in document["lines"])
    )


def _mark(won: bool) -> Text:
    return Text("→" if won else " ", style="green")


def decision(document: Json) -> Iterator[RenderableType]:
    """Lines for an environment file, and nothing else: they are redirected into one."""
    yield Text(f"KVFLAGS_DECISION={document['signed']}", no_wrap=True, overflow="ignore")
    yield Text(f"KVFLAGS_DECISION_KEY={document['key']}", no_wrap=True, overflow="ignore")
