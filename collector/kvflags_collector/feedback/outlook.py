# SPDX-License-Identifier: Apache-2.0
"""What is still missing before a flag can be `ready`, and about when that would be there."""

from __future__ import annotations

from collections.abc import Iterator

from kvflags_collector.feedback.document import Needed
from kvflags_collector.times import SECOND, rfc3339
from kvflags_collector.verdict.decide import Verdict, VerdictState
from kvflags_collector.verdict.evidence import Inputs
from kvflags_collector.verdict.minima import unmet
from kvflags_collector.verdict.promotion import missing

__all__ = ["needed"]

_DAY_US = 86_400 * SECOND
# The pace is that of the last four weeks: a shorter while has no weekend, a longer one another ramp step.
_PACE_DAYS = 28
# An event counts 3 days after the replacement, and its day is open for one more.
_MATURES_DAYS = 4
# Nobody plans further, and a date beyond it would only look precise.
_FARTHEST_DAYS = 365


def needed(judged: Inputs, found: Verdict, now_us: int) -> list[Needed]:
    """Empty where there is nothing to wait for: it is ready, or it has to be rolled back."""
    if found.state in {VerdictState.READY, VerdictState.REGRESSION}:
        return []
    return [*_minima(judged, found, now_us), *_gaps(judged, found, now_us)]


def _minima(judged: Inputs, found: Verdict, now_us: int) -> Iterator[Needed]:
    for one in unmet(judged, found.compared):
        days = judged.minima.days - judged.days if one.reason == "too_short" and judged.running else None
        yield {"reason": one.reason, "says": one.says, "more": None, "about": _date(days, now_us)}


def _gaps(judged: Inputs, found: Verdict, now_us: int) -> Iterator[Needed]:
    """Conditions of a promotion; without any event they would only say that there is none."""
    if found.compared is None or not found.compared.treated:
        return
    pace = _pace(judged, now_us)
    for one in missing(found.compared):
        days = one.more / pace + _MATURES_DAYS if one.more and pace else None
        yield {"reason": one.reason, "says": one.says, "more": one.more, "about": _date(days, now_us)}


def _pace(judged: Inputs, now_us: int) -> float:
    """Treated events a day."""
    events = judged.events
    if events is None or events.event_us is None:
        return 0.0
    recent = events.treated & (events.event_us >= now_us - _PACE_DAYS * _DAY_US)
    return int(recent.sum()) / _PACE_DAYS


def _date(days: float | None, now_us: int) -> str | None:
    """To the day."""
    if days is None or days > _FARTHEST_DAYS:
        return None
    return rfc3339(now_us + round(days * _DAY_US))[:10]
