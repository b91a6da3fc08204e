# SPDX-License-Identifier: Apache-2.0
"""The part of a report that decides: every outcome with its interval and limit, over the fleet and by stratum."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType

from kvflags_cli.render.numbers import ABSENT, count
from kvflags_cli.render.tables import table

__all__ = ["effect", "named", "outcomes", "strata"]

Json = dict[str, Any]


def outcomes(rows: list[Json]) -> RenderableType | None:
    """None before the first event."""
    if not rows:
        return None
    return table(
        ("OUTCOME", ">CHANGE", ">INTERVAL", ">LIMIT", "STANDING"),
        ((named(one), *effect(one), one["limit"], one["standing"]) for one in rows),
    )


def strata(rows: list[Json]) -> RenderableType | None:
    """Of each, the primary outcome; a dash where it is too small to be decided."""
    if not rows:
        return None
    return table(
        ("~STRATUM", ">TREATED", ">CONTROL", ">CHANGE", ">INTERVAL", "READY"),
        (
            (
                one["name"],
                count(one["treated"]),
                count(one["control"]),
                *(effect(one["outcomes"][0]) if one["outcomes"] else (ABSENT, ABSENT)),
                "yes" if one["ready"] else "no",
            )
            for one in rows
        ),
    )


def named(one: Json) -> str:
    return str(one["outcome"]).replace("_", " ")


def effect(one: Json) -> tuple[str, str]:
    """`-19.0 %` and `-27.0 to -10.0 %`; failures as factors."""
    if one["change"] is None:
        return ABSENT, ABSENT
    if one["outcome"] == "failed_transfers":
        return f"x{1 + one['change']:.2g}", f"{_bound(one['low'], 'x')} to {_bound(one['high'], 'x')}"
    return f"{one['change']:+.1%}", f"{_bound(one['low'])} to {_bound(one['high'])}"


def _bound(value: float | None, factor: str = "") -> str:
    if value is None:
        return "unbounded"
    return f"{factor}{1 + value:.2g}" if factor else f"{value:+.1%}"
