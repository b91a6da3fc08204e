# SPDX-License-Identifier: Apache-2.0
"""Views of what the collector has heard of: deployments, and engines with the layout they really have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import RenderableType

from kvflags_cli.render.numbers import ABSENT, count, moment, yes_no
from kvflags_cli.render.tables import heading, pairs, table

__all__ = ["declaration", "deployment", "deployments", "eligible", "engines", "forced", "opted", "reopened"]

Json = dict[str, Any]

_NOBODY = "None yet. They appear when an engine with KVFLAGS_COLLECTOR_URL set to this collector starts."
_UNIDENTIFIED = "(unidentified)"


def deployments(items: list[Json]) -> Iterable[RenderableType]:
    """A line per deployment and flag, with what its generations run and why it is not eligible."""
    columns = ("~DEPLOYMENT", "FLAG", "ARM", "~GENERATIONS", ">ENGINES", "~ELIGIBLE")
    return [table(columns, (row for item in items for row in _deployment(item))) if items else _NOBODY]


def deployment(item: Json) -> Iterator[RenderableType]:
    """One, with what was declared of it and how it stands under each flag."""
    yield pairs(
        [
            ("deployment", item["deployment"]),
            ("engines", count(item["live_engines"])),
            ("generations", ", ".join(item["live_generations"]) or ABSENT),
            ("roles", ", ".join(item["roles"]) or ABSENT),
            ("backends", ", ".join(item["backends"]) or ABSENT),
            ("observed", moment(item["observed_at"])),
            ("baseline since", moment(item["baseline_at"])),
            *_stated(item["declared"] or {}),
        ]
    )
    for flag in item["flags"]:
        yield heading(flag["flag"])
        yield pairs(
            [
                ("eligible", eligible(flag)),
                ("arm", flag["arm"] or ABSENT),
                ("comparison", flag["comparison"] or ABSENT),
                ("opted", flag["opted"] or ABSENT),
                ("pins", ", ".join(_pins(flag["pins"])) or ABSENT),
            ]
        )


def declaration(document: Json) -> Iterable[RenderableType]:
    return [pairs([("deployment", document["deployment"]), *_stated(document["declared"])])]


def opted(document: Json) -> Iterable[RenderableType]:
    choice = f"opted {document['opted']}" if document["opted"] else "takes what is dealt"
    return [f"{document['deployment']}: {choice}" + ("" if document["changed"] else " (as before)")]


def forced(document: Json) -> Iterable[RenderableType]:
    pin = document["pin"]
    return [f"{document['deployment']} {document['generation']}: pinned {pin['variant']}, epoch {pin['epoch']}"]


def reopened(document: Json) -> Iterable[RenderableType]:
    pin = document["closed"]
    return [f"{document['deployment']} {document['generation']}: epoch {pin['epoch']} ({pin['variant']}) closed"]


def _stated(declared: Json) -> list[tuple[str, str]]:
    """What was declared, without what was not."""
    labels = ", ".join(f"{name}={value}" for name, value in (declared.get("labels") or {}).items())
    values = declared | {"labels": labels}
    return [(f"declared {name.replace('_', ' ')}", str(value)) for name, value in values.items() if value]


def _deployment(item: Json) -> Iterator[tuple[str, ...]]:
    engines = count(item["live_engines"])
    for flag in item.get("flags") or [{}]:
        yield (
            item["deployment"] or _UNIDENTIFIED,
            flag.get("flag") or ABSENT,
            flag.get("arm") or ABSENT,
            ", ".join(_pins(flag.get("pins") or ())) or ", ".join(item["live_generations"]) or ABSENT,
            engines,
            eligible(flag),
        )


def _pins(pins: Iterable[Json]) -> Iterator[str]:
    for pin in pins:
        yield f"{pin['generation']} {pin['variant']}" + (" condemned" if pin["state"] == "condemned" else "")


def eligible(flag: Json) -> str:
    """`yes`, or `no` with every reason, what time alone mends last; `-` without a flag."""
    if not flag:
        return ABSENT
    if flag["eligible"]:
        return "yes"
    refused = [refusal["says"] for refusal in flag["refusals"]]
    return "no: " + "; ".join([*refused, *([flag["waiting_for"]] if flag["waiting_for"] else [])])


def engines(items: list[Json]) -> Iterable[RenderableType]:
    columns = ("~DEPLOYMENT", "~GENERATION", "ROLE", "STATE", "REQUESTED", "RESOLVED", "EFFECTIVE", ">OK", ">ERRORS")
    parts: list[RenderableType] = [table((*columns, "~ENGINE"), map(_engine, items)) if items else _NOBODY]
    troubled = [(item["engine_id"] or item["registration_id"], ", ".join(item["problems"])) for item in items]
    problems = [one for one in troubled if one[1]]
    return [*parts, heading("PROBLEMS"), pairs(problems)] if problems else parts


def _engine(item: Json) -> tuple[str, ...]:
    layout, exercised = item["layout"], item["exercised"]
    return (
        item["deployment"] or _UNIDENTIFIED,
        item["generation"],
        item["role"],
        item["state"],
        layout["requested"] or ABSENT,
        layout["resolved"] or ABSENT,
        yes_no(layout["effective"]),
        count(exercised["ok"]),
        count(exercised["errors"]),
        item["engine_id"] or ABSENT,
    )
