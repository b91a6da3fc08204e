# SPDX-License-Identifier: Apache-2.0
"""Views of plans: the census, what is to be replaced, and that as a shell script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from kvflags_cli.render.fleet import eligible
from kvflags_cli.render.numbers import ABSENT, count
from kvflags_cli.render.tables import table

__all__ = ["census", "restarts", "script"]

Json = dict[str, Any]


def census(items: list[Json]) -> Iterator[RenderableType]:
    """A line per deployment and flag, and the sum."""
    flags = [(item, flag) for item in items for flag in item["flags"] or [{}]]
    rows = ((item["deployment"], flag.get("flag") or ABSENT, _cost(item), eligible(flag)) for item, flag in flags)
    yield table(("~DEPLOYMENT", "FLAG", ">ENGINES TO REPLACE", "~ELIGIBLE"), rows)
    able = sum(flag.get("eligible", False) for _, flag in flags)
    yield Text(f"\n{able} of {len(items)} deployments eligible. {_reach(able)}")


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


def _reach(able: int) -> str:
    """What a fleet of that size can come to. A verdict needs eight deployments in each arm."""
    if able < 2:
        return "A comparison needs at least two."
    if able < 16:
        return "Too few for a verdict (8 in each arm); the circuit breaker still watches."
    return "`kvflags simulate` says which verdict a fleet of this size reaches, and about when."
