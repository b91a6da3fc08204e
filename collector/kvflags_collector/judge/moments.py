# SPDX-License-Identifier: Apache-2.0
"""Events in the ledger: a deployment's first generation after a ramp step, in either arm. Treated ones once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, RowMapping, select

from kvflags.flags import Arm, Comparison
from kvflags_collector.store.control_tables import flag_revisions, pins
from kvflags_collector.times import SECOND

__all__ = ["Moment", "moments"]

_WEEK_US = 7 * 86_400 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """after: the (generation, epoch) pairs from this event on. previous: the generation before it. cut_us: when a
    later treatment ends what can be said of a control."""

    flag: str
    deployment: str
    generation: str
    epoch: int
    event_us: int
    treated: bool
    step: int
    previous: str | None
    after: frozenset[tuple[str, int]]
    cut_us: int | None

    @property
    def cohort(self) -> str:
        """What is compared shares the ramp step and the week."""
        return f"{self.step}/{self.event_us // _WEEK_US}"


def moments(conn: Connection, flag: str) -> list[Moment]:
    """By deployment and time; what is excluded has none."""
    steps = _steps(conn, flag)
    query = select(pins).where(pins.c.flag == flag).order_by(pins.c.deployment, pins.c.pinned_us, pins.c.id)
    rows = conn.execute(query).mappings().all()
    return [one for _, own in groupby(rows, key=lambda row: row["deployment"]) for one in _of(list(own), steps)]


def _of(own: Sequence[RowMapping], steps: Sequence[int]) -> Iterator[Moment]:
    """Of one deployment, whose pins these are."""
    done: set[object] = set()
    for at, pin in enumerate(own):
        step = bisect_right(steps, pin["pinned_us"])
        treated = pin["arm"] == Arm.TREATMENT
        mark: object = "treated" if treated else step
        if pin["comparison"] != Comparison.INCLUDED or pin["arm"] is None or mark in done:
            continue
        done.add(mark)
        later = own[at:]
        cuts = [one["pinned_us"] for one in later if one["arm"] == Arm.TREATMENT and not treated]
        yield Moment(
            flag=pin["flag"],
            deployment=pin["deployment"],
            generation=pin["generation"],
            epoch=pin["epoch"],
            event_us=pin["pinned_us"],
            treated=treated,
            step=step,
            previous=own[at - 1]["generation"] if at else None,
            after=frozenset((one["generation"], one["epoch"]) for one in later),
            cut_us=min(cuts, default=None),
        )


def _steps(conn: Connection, flag: str) -> list[int]:
    """When the target changed: the times of the ramp's steps, ascending."""
    r = flag_revisions.c
    query = select(r.document, r.recorded_us).where(r.key == flag).order_by(r.revision)
    found: list[int] = []
    last: Any = None
    for document, recorded_us in conn.execute(query):
        aim = (document.get("target"), document.get("overrides"))
        if aim != last:
            found.append(recorded_us)
        last = aim
    return found
