# SPDX-License-Identifier: Apache-2.0
"""Views of plans: the census, what is to be replaced, and that as a shell script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from kvflags_cli.census import LEAST
from kvflags_cli.render.fleet import eligible
from kvflags_cli.render.numbers import ABSENT, count, ratio
from kvflags_cli.render.tables import table
from kvflags_cli.render.words import verdict

__all__ = ["census", "restarts", "script"]

Json = dict[str, Any]


def census(document: Json) -> Iterator[RenderableType]:
    """A line per deployment and flag, the sum of each flag, and what that many can come to."""
    items = document["deployments"]
    flags = [(item, flag) for item in items for flag in item["flags"] or [{}]]
    rows = ((item["deployment"], flag.get("flag") or ABSENT, _cost(item), eligible(flag)) for item, flag in flags)
    yield table(("~DEPLOYMENT", "FLAG", ">ENGINES TO REPLACE", "~ELIGIBLE"), rows)
    for one in document["reach"]:
        whose = f"{one['flag']}: " if len(document["reach"]) > 1 else ""
        yield Text(f"\n{whose}{one['eligible']} of {len(items)} deployments eligible. {_reach(one)}")
        if one["assuming"]:
            yield _ahead(one)
    if not document["reach"]:
        yield Text(f"\n0 of {len(items)} deployments eligible: there is no flag yet. kvflags flags create --help")


def restarts(items: list[Json]) -> Iterable[RenderableType]:
    if not items:
        return ["Nothing to replace."]
    columns = ("~DEPLOYMENT", "ARM", "~GENERATIONS", ">ENGINES", "~WHY", "~NEXT GENERATION")
    return [table(columns, map(_row, items))]


def script(items: list[Json]) -> Iterator[RenderableType]:
    """A script that stops at the first command that fails: the next deployment is not touched then."""
    yield "set -e"
    for item in items:
        yield Text(f"# {item['deployment']}: {item['why']}", no_wrap=True, overflow="ignore")
        yield from (Text(command, no_wrap=True, overflow="ignore") for command in item["commands"])


def _row(item: Json) -> tuple[str, ...]:
    generations = ", ".join(item["generations"])
    engines = count(item["engines"])
    return (item["deployment"], item["arm"] or ABSENT, generations, engines, item["why"], item["next_generation"])


def _cost(item: Json) -> str:
    return count(item["live_engines"])


def _reach(one: Json) -> str:
    """What a fleet of that size can come to."""
    able = one["eligible"] + one["waiting"]
    if able < 2:
        return "A comparison needs at least two."
    if able < LEAST:
        return "Too few for a verdict (8 in each arm); the circuit breaker still watches."
    if one["begun"]:
        return f"It has begun: `kvflags report {one['flag']}` says what is still needed, and about when."
    if not one["assuming"]:
        return "Enough for a verdict."
    observed = f", once {one['waiting']} more are observed" if one["waiting"] else ""
    return f"If it began today{observed}, and its steps were not held up:"


def _ahead(one: Json) -> RenderableType:
    """By simulation: how many of the rollouts come to which verdict, and by when half of these have."""
    rows = (
        (assumed["assumed"], verdict(row["state"]), ratio(row["rollouts"], assumed["rollouts"]), row["about"] or ABSENT)
        for assumed in one["assuming"]
        for row in assumed["verdicts"]
    )
    return table(("~IF IT IS", "VERDICT", "~SIMULATED ROLLOUTS", "ABOUT"), rows)
