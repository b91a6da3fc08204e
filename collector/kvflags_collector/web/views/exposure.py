# SPDX-License-Identifier: Apache-2.0
"""Exposure over time: how many deployments ran treated, as control, or compared with nobody; and what changed when."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, select

from kvflags.flags import Variant
from kvflags_collector.store import control_tables as tables
from kvflags_collector.times import rfc3339

__all__ = ["KINDS", "exposure"]

# From the one that counts for a deployment of which several generations are pinned at once.
KINDS = ("treatment", "control", "other")
# Points of the line: one for each few pixels of the chart.
_POINTS = 120
_MARKS = 40
_MARKED = {
    "set_target": "target",
    "ramp_step": "step",
    "plan_ramp": "ramp laid out",
    "start": "started",
    "pause": "paused",
    "resume": "resumed",
    "abort": "aborted",
    "kill_switch_on": "kill switch set",
    "kill_switch_off": "kill switch cleared",
    "guardrail_abort": "stopped by a guard",
    "guardrail_hold": "held by a guard",
    "guardrail_roll_back": "a stratum rolled back by a guard",
    "make_default": "made the default",
    "complete": "completed",
    "undo": "undone",
    "extend": "expiry moved",
}


def exposure(conn: Connection, flag: str, now: int) -> dict[str, Any]:
    """`{points: [{at, treatment, control, other}], marks: [{at, says}]}`, in order of time; both empty before any pin.

    `other` runs what nobody compares: forced, opted in, from before the rollout. Reads.
    """
    r, p = tables.flag_revisions, tables.pins.c
    pins = conn.execute(select(p.deployment, p.arm, p.variant, p.pinned_us, p.closed_us).where(p.flag == flag)).all()
    revisions = conn.execute(select(r).where(r.c.key == flag).order_by(r.c.revision)).mappings().all()
    marks = [
        {"at": rfc3339(row["recorded_us"]), "says": f"{_MARKED[row['action']]}, revision {row['revision']}"}
        for row in revisions
        if row["action"] in _MARKED
    ]
    start = min([row["recorded_us"] for row in revisions] or [now])
    spans = [(row.deployment, _kind(row.arm, row.variant), row.pinned_us, row.closed_us) for row in pins]
    return {"points": _points(spans, start, now) if spans else [], "marks": marks[-_MARKS:]}


def _kind(arm: str | None, variant: str) -> str:
    if arm == "treatment":
        # Assigned and not carried out by this generation: it does not run the treatment.
        return "treatment" if variant == Variant.ON else "other"
    return arm or "other"


def _points(spans: Iterable[tuple[str, str, int, int | None]], start: int, now: int) -> list[dict[str, Any]]:
    """Sampled at equal distances; each deployment counts once at each."""
    times = [start + (now - start) * index // (_POINTS - 1) for index in range(_POINTS)] if now > start else [now]
    by_name: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for deployment, kind, begin, end in spans:
        by_name[deployment].append((kind, begin, now + 1 if end is None else end))
    # A row for each kind, and a last one for those that run nothing.
    counts = np.zeros((len(KINDS) + 1, len(times)), np.int64)
    for mine in by_name.values():
        counts[_sampled(mine, times), np.arange(len(times))] += 1
    return [
        {"at": rfc3339(at)} | dict(zip(KINDS, column, strict=False))
        for at, column in zip(times, counts.T.tolist(), strict=True)
    ]


def _sampled(mine: Sequence[tuple[str, int, int]], times: Sequence[int]) -> npt.NDArray[np.int64]:
    """The index in KINDS of what one deployment runs at each of the times, which ascend: the first of several."""
    runs = np.full(len(times), len(KINDS))
    for kind, begin, end in mine:
        during = slice(bisect_left(times, begin), bisect_left(times, end))
        runs[during] = np.minimum(runs[during], KINDS.index(kind))
    return runs
