# SPDX-License-Identifier: Apache-2.0
"""How wide the evidence is: deployments, events, transfers, days, releases; and what replacing them cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from sqlalchemy import RowMapping

from kvflags_collector.feedback.document import Arm, Evidence, RestartCost
from kvflags_collector.judge.generations import Generation
from kvflags_collector.times import rfc3339
from kvflags_collector.verdict.compare import Compared
from kvflags_collector.verdict.events import AFTER_DAYS
from kvflags_collector.verdict.evidence import Inputs

__all__ = ["evidence", "restart_cost"]

_RELEASES = ("vllm", "nixl", "gpu")


def evidence(
    judged: Inputs,
    compared: Compared | None,
    found: Sequence[Generation],
    arms: Sequence[Arm],
    rows: Iterable[RowMapping],
) -> Evidence:
    """Of a comparison as it stands, and its frozen events."""
    latest = [one for one in found if one.latest]
    transfers = [arm["transfers"] for arm in arms if arm["arm"] is not None and arm["transfers"] is not None]
    facts = [engine["facts"] for one in latest if one.included for engine in one.engines]
    return {
        "deployments": {"treatment": judged.number(treated=True), "control": judged.number(treated=False)},
        "excluded": sum(not one.included for one in latest),
        "events": {
            "treatment": compared.treated if compared else 0,
            "control": compared.control if compared else 0,
        },
        "unmatched": compared.unmatched if compared else 0,
        "left_out": _left_out(rows),
        "transfers": sum(transfers) if transfers else None,
        "days": round(judged.days, 3),
        "since": rfc3339(_first_treated(judged)),
        "releases": {name: sorted({one[name] for one in facts if one.get(name)}) for name in _RELEASES},
    }


def restart_cost(rows: Iterable[RowMapping]) -> RestartCost | None:
    """Over the replacements of both arms, of frozen events; None before the first."""
    own = [row["measured"].get("restart") for row in rows if row["horizon"] == AFTER_DAYS]
    costs = [one for one in own if one]
    if not costs:
        return None
    minutes = [one["minutes"] for one in costs if one["minutes"] is not None]
    transfers, failed = (sum(one[name] for one in costs) for name in ("transfers", "failed"))
    return {
        "events": len(costs),
        "minutes": round(median(minutes), 2) if minutes else None,
        "transfers": transfers,
        "failed": failed,
        "share": failed / transfers if transfers else None,
    }


def _left_out(rows: Iterable[RowMapping]) -> dict[str, int]:
    reasons = Counter(row["left_out"] for row in rows if row["horizon"] == AFTER_DAYS and row["left_out"] is not None)
    return dict(sorted(reasons.items()))


def _first_treated(judged: Inputs) -> int | None:
    events = judged.events
    if events is None or events.event_us is None or not events.treated.any():
        return None
    return int(events.event_us[events.treated].min())
