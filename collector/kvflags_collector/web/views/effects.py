# SPDX-License-Identifier: Apache-2.0
"""Outcomes against their limits, and one of them stratum by stratum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvflags_collector.verdict.compare import LEAST_TREATED
from kvflags_collector.verdict.outcomes import PRIMARY

__all__ = ["forest", "outcomes"]

# What needs a person first: then what is not known yet.
_ORDER = ("broken", "open", "met")


def outcomes(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fleet's, the worst standing first."""
    return sorted(report["outcomes"], key=lambda one: _ORDER.index(one["standing"]))


def forest(report: Mapping[str, Any], asked: str | None) -> dict[str, Any]:
    """The outcome asked for (else the primary) over the fleet and in each stratum; `rows` empty before any event.

    A stratum under the minimum has no interval, and says how many treated events it lacks.
    """
    choices = list(dict.fromkeys(one["outcome"] for part in report["strata"] for one in part["outcomes"]))
    name = asked if asked and asked in choices else PRIMARY.value
    whole = [_row("all strata", one, one["treated"], one["control"]) for one in _named(report, name)]
    parts = [_part(stratum, name) for stratum in report["strata"]]
    return {"outcome": name, "choices": choices or [PRIMARY.value], "least": LEAST_TREATED, "rows": [*whole, *parts]}


def _part(stratum: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = next(iter(_named(stratum, name)), None)
    short = LEAST_TREATED - (stratum["treated"] or 0)
    lacks = f"{short} more treated needed" if short > 0 else None
    row = _row(stratum["name"], found, stratum["treated"], stratum["control"])
    return row | {"ready": stratum["ready"], "lacks": lacks}


def _named(part: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    return [one for one in part["outcomes"] if one["outcome"] == name]


def _row(name: str, found: Mapping[str, Any] | None, treated: int | None, control: int | None) -> dict[str, Any]:
    known = {key: found[key] if found else None for key in ("change", "low", "high", "limit", "standing")}
    return {"name": name, "treated": treated, "control": control, "ready": False, "lacks": None} | known
