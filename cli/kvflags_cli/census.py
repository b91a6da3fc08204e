# SPDX-License-Identifier: Apache-2.0
"""The census of a fleet: who could be treated under which flag, and what that many can come to. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, timedelta
from typing import Any

__all__ = ["LEAST", "census"]

Json = dict[str, Any]

# A verdict needs eight deployments in each arm.
LEAST = 16


def census(items: list[Json], reach: Callable[[int], Iterable[Json]], today: date) -> Json:
    """`{deployments, reach}`: the deployments as the collector has them, and for each flag how many of them are
    eligible, how many only wait to be observed, and what all of these would come to if the rollout began today.

    Nothing is looked ahead for a fleet that is too small for a verdict, nor for a rollout that has begun: its report
    knows better.
    """
    keys = sorted({flag["flag"] for item in items for flag in item["flags"]})
    return {"deployments": items, "reach": [_under(key, items, reach, today) for key in keys]}


def _under(key: str, items: list[Json], reach: Callable[[int], Iterable[Json]], today: date) -> Json:
    mine = [flag for item in items for flag in item["flags"] if flag["flag"] == key]
    eligible = sum(flag["eligible"] for flag in mine)
    waiting = sum(not flag["eligible"] and not flag["refusals"] for flag in mine)
    begun = any(flag["arm"] for flag in mine)
    ahead = [] if begun or eligible + waiting < LEAST else list(reach(eligible + waiting))
    return {
        "flag": key,
        "eligible": eligible,
        "waiting": waiting,
        "begun": begun,
        "assuming": [one | {"verdicts": [_dated(row, today) for row in one["verdicts"]]} for one in ahead],
    }


def _dated(row: Json, today: date) -> Json:
    """`about`: the day on which half of those rollouts have come to it, if the first deployment is treated today."""
    day = row["median_day"]
    return row | {"about": None if day is None else (today + timedelta(days=round(day))).isoformat()}
