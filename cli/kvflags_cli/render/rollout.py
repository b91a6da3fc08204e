# SPDX-License-Identifier: Apache-2.0
"""Views of a rollout under way: its status, an explanation, a signed decision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from kvflags_cli.render.flags import target
from kvflags_cli.render.graduation import graduation
from kvflags_cli.render.numbers import ABSENT, count, moment, percent, ratio
from kvflags_cli.render.ramp import ramp
from kvflags_cli.render.tables import heading, pairs, table
from kvflags_cli.render.words import phase, switch

__all__ = ["decision", "explanation", "history", "status", "treated"]

Json = dict[str, Any]


def status(document: Json) -> Iterator[RenderableType]:
    flag, realised = document["flag"], document["realised"]
    dealt = realised["treated"] + realised["control"]
    yield pairs(
        [
            ("flag", flag["key"]),
            ("phase", phase(flag["phase"])),
            ("kill switch", switch(flag["kill_switch"])),
            ("target", target(flag["target"])),
            *((f"target on {backend}", target(one)) for backend, one in sorted(flag["overrides"].items())),
            ("realised", f"{percent(realised['share'])}: {ratio(realised['treated'], dealt)} treated"),
            *ramp(document["ramp"]),
            *graduation(document["graduation"]),
            ("eligible", count(realised["eligible"])),
            ("to replace", _to_replace(document["deployments"])),
        ]
    )
    yield heading("DEPLOYMENTS")
    yield _deployments(document["deployments"])
    for words, part in (("PENDING", _pending(document["deployments"])), ("ALARMS", _alarms(document["alarms"]))):
        if part:
            yield heading(words)
            yield pairs(part)


def _to_replace(items: list[Json]) -> str:
    engines = sum(generation["to_replace"] for item in items for generation in item["generations"])
    return f"condemned, {engines} engine{'' if engines == 1 else 's'} to replace" if engines else "nothing"


def _deployments(items: list[Json]) -> RenderableType:
    if not items:
        return "None yet. They appear when an engine with KVFLAGS_COLLECTOR_URL set to this collector starts."
    columns = ("~DEPLOYMENT", "ARM", "~GENERATION", "VARIANT", "STATE", ">ENGINES", ">REPLACE", "~REASON")
    return table(columns, (row for item in items for row in _rows(item)))


def _rows(item: Json) -> Iterator[tuple[str | Text, ...]]:
    """A line per generation; a deployment without a live one has a line of its own."""
    for one in item["generations"] or [{}]:
        yield (
            item["deployment"],
            item["arm"] or ABSENT,
            _generation(one),
            one.get("variant") or ABSENT,
            _state(one.get("state")),
            count(one.get("live_engines")),
            count(one.get("to_replace")),
            _reason(item, one),
        )


def _generation(one: Json) -> str:
    if not one:
        return ABSENT
    return f"{one['generation']}" + (f" #{one['epoch']}" if one["epoch"] is not None else "")


def _state(name: str | None) -> str | Text:
    return Text(name, style="red") if name == "condemned" else (name or ABSENT)


def _reason(item: Json, one: Json) -> str:
    """Why this generation runs what it runs; and why it was condemned, or is not compared, where it is."""
    parts = [one.get("reason") or item["reason"] or ABSENT, one.get("condemned_reason"), one.get("excluded_because")]
    return ", ".join(dict.fromkeys(part for part in parts if part))


def _pending(items: list[Json]) -> list[tuple[str, str]]:
    return [(item["deployment"], f"its next generation runs {item['pending']}") for item in items if item["pending"]]


def _alarms(items: list[Json]) -> list[tuple[str, str]]:
    return [(one["kind"], f"{one['says']} (since {moment(one['first_at'])})") for one in items]


def explanation(document: Json) -> Iterator[RenderableType]:
    yield pairs([("deployment", document["deployment"]), ("generation", document["generation"] or ABSENT)])
    yield heading("PRECEDENCE")
    yield table(
        ("", "LINE", "~OUTCOME"), ((_mark(one["won"]), one["line"], one["outcome"]) for one in document["lines"])
    )
    yield Text(f"\n{_summary(document)}")


def _mark(won: bool) -> Text:
    return Text("→" if won else " ", style="green")


def _summary(document: Json) -> str:
    """The pin wins while it lives; what the next generation would be told is then the second half of the answer."""
    following = document["next"]
    then = f"{following['variant']} ({following['reason']}), decided by: {following['line']}."
    if document["pin"] is None:
        return f"A generation registering now would be told {then}"
    return f"The pin outranks the lines below it. A generation registering now would be told {then}"


def history(items: list[Json]) -> Iterator[RenderableType]:
    """What was done, the newest first."""
    yield table(("AT", ">REVISION", "ACTION", "~UPON", "~AUTHOR", "~REASON"), map(_change, items))


def _change(one: Json) -> tuple[str, ...]:
    at, revision = moment(one["recorded_at"]), str(one.get("revision", ABSENT))
    return (at, revision, one["action"], _upon(one), one["author"], one["reason"])


def _upon(one: Json) -> str:
    if "document" in one:
        aims = [target(one["document"]["target"])]
        aims += [f"{backend} {target(aim)}" for backend, aim in sorted(one["document"]["overrides"].items())]
        return ", ".join(aims)
    return " ".join(filter(None, (one["deployment"], one["generation"])))


def treated(items: list[Json]) -> Iterator[RenderableType]:
    """Engines that are on, and live."""
    columns = ("~DEPLOYMENT", "~GENERATION", "ROLE", "~ENGINE")
    rows = ((one["deployment"], one["generation"], one["role"], one["engine_id"] or ABSENT) for one in items)
    yield table(columns, rows) if items else "No treated engine lives."


def decision(document: Json) -> Iterator[RenderableType]:
    """Lines for an environment file, and nothing else: they are redirected into one."""
    yield Text(f"KVFLAGS_DECISION={document['signed']}", no_wrap=True, overflow="ignore")
    yield Text(f"KVFLAGS_DECISION_KEY={document['key']}", no_wrap=True, overflow="ignore")
