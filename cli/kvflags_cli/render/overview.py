# SPDX-License-Identifier: Apache-2.0
"""A rollout at a glance, as a tree: the verdict, the ramp, what could make the data lie, and every guardrail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from kvflags_cli.render.changes import realised
from kvflags_cli.render.flags import target
from kvflags_cli.render.graduation import graduation
from kvflags_cli.render.interval import bar, reach
from kvflags_cli.render.numbers import count, moment
from kvflags_cli.render.ramp import ramp
from kvflags_cli.render.report_effects import effect, named
from kvflags_cli.render.tables import pairs, table
from kvflags_cli.render.words import phase, standing, verdict

__all__ = ["overview", "tree"]

Json = dict[str, Any]


def overview(document: Json) -> Iterator[RenderableType]:
    yield tree(document)


def tree(document: Json, note: str = "") -> Tree:
    """`note`: a last line about the looking itself, such as that the collector is silent."""
    flag, banner = document["flag"], document["banner"]
    name = Text.assemble(verdict(banner["state"]), f"  {flag['key']}  ", phase(flag["phase"]))
    root = Tree(name.append("  KILL SWITCH SET", "bold red") if flag["kill_switch"] else name)
    root.add(pairs(_why(banner)))
    _branch(root, "RAMP", pairs(_course(document)))
    _branch(root, "HEALTH", _health(document["health"]))
    _branch(root, "GUARDRAILS AND GOALS", _outcomes(document["outcomes"], trusted=document["trusted"]))
    if document["alarms"]:
        _branch(root, "ALARMS", pairs([(one["kind"], one["says"]) for one in document["alarms"]]))
    root.add(Text(note or f"as of {moment(document['generated_at'])}", style="yellow" if note else "dim"))
    return root


def _branch(root: Tree, words: str, part: RenderableType) -> None:
    root.add(Text(words, style="bold")).add(part)


def _why(banner: Json) -> list[tuple[str, str | Text]]:
    why = [("why" if n == 0 else "", says) for n, says in enumerate(banner["why"])]
    last = banner["last_change"]
    change = f"{last['action']} by {last['author']}: {last['reason']}"
    return [*why, *(("doubt", says) for says in banner["doubts"]), ("next", banner["next"]), ("last change", change)]


def _course(document: Json) -> list[tuple[str, str | Text]]:
    replacing = document["replacing"]
    engines = f"{count(replacing['engines'])} engines in {count(replacing['deployments'])} deployments"
    return [
        ("target", target(document["flag"]["target"])),
        ("realised", realised(document)),
        *ramp(document["ramp"]),
        *graduation(document["graduation"]),
        ("running treated", f"{count(document['banner']['treated_engines'])} engines"),
        ("to replace", engines if replacing["engines"] else "nothing"),
    ]


def _health(lines: list[Json]) -> RenderableType:
    """What is not as it should be, and how many are."""
    wrong = [one for one in lines if one["standing"] != "good"]
    shown: list[tuple[str, str | Text]] = [(one["name"], _check(one)) for one in wrong]
    fine = len(lines) - len(wrong)
    return pairs([*shown, ("" if wrong else "all", standing("good").append(f", {count(fine)} of {count(len(lines))}"))])


def _check(one: Json) -> Text:
    value = "" if one["value"] is None else f" {one['value']}"
    return standing(one["standing"]).append(f"{value}: {one['says']}", "default")


def _outcomes(rows: list[Json], *, trusted: bool) -> RenderableType:
    if not rows:
        return Text("None yet: they appear with the first deployments that were measured on both sides.")
    axis = reach(rows)
    columns = ("OUTCOME", ">CHANGE", "INTERVAL", ">LIMIT", ">TREATED", "STANDING")
    return table(columns, (_outcome(one, axis, trusted=trusted) for one in rows))


def _outcome(one: Json, axis: float, *, trusted: bool) -> tuple[str | Text, ...]:
    """Greyed where the comparison cannot be trusted: the numbers stay, the colours go."""
    found = standing(one["standing"])
    style = "" if trusted else "dim"
    drawn = Text(bar(one, axis), style=style)
    stands = found if trusted else Text(found.plain, style=style)
    return named(one), Text(effect(one)[0], style=style), drawn, one["limit"], count(one["treated"]), stands
