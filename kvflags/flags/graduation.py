# SPDX-License-Identifier: Apache-2.0
"""What must hold before a feature becomes the default, declared with its flag: a small language, and its judge. Pure.

    verdict = ready            the verdict is ready, for one stratum at least
    verdict = ready in NAME    for this stratum
    treated >= 8               or any other of MEASURES, with >=, <= or =

A closed set, so that everybody who asks gets the same answer from the same numbers.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

__all__ = ["MEASURES", "Graded", "criterion_problem", "expired", "graded"]

MEASURES: dict[str, str] = {
    "treated": "treated deployments that live with the feature in effect",
    "control": "control deployments that are compared",
    "days": "days since the first deployment was treated",
    "days_at_100": "days for which the target has been 100 %",
    "alarms": "alarms that stand",
}

_NUMERIC = re.compile(r"([a-z_0-9]+)\s*(>=|<=|=)\s*(\d{1,9}(?:\.\d{1,3})?)", re.ASCII)
_READY = re.compile(r"verdict\s*=\s*ready(?:\s+in\s+(\S.*))?")
_COMPARE: dict[str, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le, "=": operator.eq}


@dataclass(frozen=True, slots=True)
class Graded:
    """One criterion with its numbers in words. met: None where nothing tells yet."""

    criterion: str
    met: bool | None
    detail: str

    def to_json(self) -> dict[str, Any]:
        return {"says": self.criterion, "met": self.met, "detail": self.detail}


def criterion_problem(text: str) -> str:
    """What is wrong with a criterion, in words; empty for a good one."""
    if _READY.fullmatch(text.strip()):
        return ""
    found = _NUMERIC.fullmatch(text.strip())
    if found and found[1] in MEASURES:
        return ""
    return f"{text!r} is no criterion: 'verdict = ready', or one of {', '.join(MEASURES)} with >=, <= or = and a number"


def graded(criteria: Iterable[str], figures: Mapping[str, float | None], scope: Collection[str] | None) -> list[Graded]:
    """Each criterion against `figures` (by the names of MEASURES; None: not known).

    scope: the strata that the verdict is ready for, empty where it is not ready, None where it was not asked for.
    """
    return [_graded(text, figures, scope) for text in criteria]


def expired(expires: str | None, now_us: int) -> bool:
    """Whether the day is over (UTC); False for a flag that never expires. `now_us` in microseconds since 1970."""
    return expires is not None and datetime.fromtimestamp(now_us / 1e6, UTC).date() > date.fromisoformat(expires)


def _graded(text: str, figures: Mapping[str, float | None], scope: Collection[str] | None) -> Graded:
    if ready := _READY.fullmatch(text.strip()):
        return _ready(text, ready[1], scope)
    found = _NUMERIC.fullmatch(text.strip())
    if found is None or found[1] not in MEASURES:
        return Graded(text, None, "a person has to judge it")
    value = figures.get(found[1])
    if value is None:
        return Graded(text, None, f"{MEASURES[found[1]]}: not known yet")
    # One decimal, rounded down: what is shown as 14 must be 14.
    shown = int(value * 10) / 10
    return Graded(text, _COMPARE[found[2]](value, float(found[3])), f"{MEASURES[found[1]]}: {shown:g}")


def _ready(text: str, stratum: str | None, scope: Collection[str] | None) -> Graded:
    if scope is None:
        return Graded(text, None, "the verdict was not asked for here; the report has it")
    if not scope:
        return Graded(text, False, "the verdict is not ready")
    return Graded(text, stratum is None or stratum in scope, f"the verdict is ready for {', '.join(sorted(scope))}")
