# SPDX-License-Identifier: Apache-2.0
"""Where a default would take effect, what keeps the others out, and what failed in which arm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from kvflags_collector.feedback.document import Arm, Coverage, Deployment, Kind, Rate, Refused
from kvflags_collector.rollout.assign import Member

__all__ = ["coverage", "kinds"]


def coverage(rows: Iterable[Deployment], members: Iterable[Member]) -> Coverage:
    """Of all deployments: those with a pin, an engine or a registration under any name."""
    latest = {row["deployment"]: row for row in rows if row["latest"]}
    fleet = {one.deployment: one.eligible for one in members}
    number, eligible = len(latest.keys() | fleet.keys()), sum(fleet.values())
    refused: dict[str, list[str]] = defaultdict(list)
    for row in latest.values():
        for refusal in row["refusals"]:
            refused[refusal["code"]].append(refusal["says"])
    reasons: list[Refused] = [
        {"code": code, "says": says[0], "deployments": len(says)} for code, says in refused.items()
    ]
    return {
        "deployments": number,
        "eligible": eligible,
        "share": eligible / number if number else None,
        "refusals": sorted(reasons, key=lambda one: (-one["deployments"], one["code"])),
    }


def kinds(arms: Sequence[Arm]) -> list[Kind]:
    """Failed transfers by kind: the number in each arm, and its share of that arm's transfers (null without any)."""
    compared = [arm for arm in arms if arm["arm"] is not None]
    names = sorted({kind for arm in compared for kind in arm["errors"]})
    return [{"kind": name, "arms": {arm["arm"] or "": _rate(arm, name) for arm in compared}} for name in names]


def _rate(arm: Arm, kind: str) -> Rate:
    number = arm["errors"].get(kind, 0)
    return {"failed": number, "share": number / arm["transfers"] if arm["transfers"] else None}
