# SPDX-License-Identifier: Apache-2.0
"""What each generation of each deployment was told, what its engines made of it, and what it transferred. Reads only.

One `Generation` for every pin of a flag, and one for what was transferred where the flag had not yet decided anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sqlalchemy import Connection, RowMapping, select

from kvflags.flags import Comparison
from kvflags_collector.store.control_tables import engines, pins
from kvflags_collector.store.current import Rolled, rolled
from kvflags_collector.store.events import Told, told
from kvflags_collector.store.levels import DAY
from kvflags_collector.store.measures import NOTHING, Measures, merge

__all__ = ["Generation", "generations"]

# Roll-up rows added up at once: some for each of a thousand deployments, in about 20 MB.
_TOGETHER = 20_000


@dataclass(slots=True, kw_only=True)
class Generation:
    """pin: its row in the ledger, None where nothing was decided. engines: rows of those that ran under it.

    layout: what those say together, filled in by `layout.look`. told: what its events add up to.
    """

    deployment: str
    generation: str
    pin: RowMapping | None = None
    latest: bool = False
    engines: list[RowMapping] = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=dict)
    totals: Measures = NOTHING
    told: Told = field(default_factory=Told)

    @property
    def included(self) -> bool:
        """Whether it counts in the comparison."""
        return self.pin is not None and self.pin["comparison"] == Comparison.INCLUDED and self.pin["arm"] is not None

    @property
    def excluded_because(self) -> str | None:
        """A code; None for what is compared."""
        if self.included:
            return None
        if self.pin is None:
            return "not_decided" if self.deployment else "unidentified"
        because: str = self.pin["excluded_because"] or self.pin["reason"]
        return because

    @property
    def since_us(self) -> int:
        """When it was pinned; 0 where nothing was decided, which was before anything was."""
        return self.pin["pinned_us"] if self.pin else 0


def generations(conn: Connection, flag: str) -> list[Generation]:
    """By deployment, the oldest first, so that the last of a deployment is its latest."""
    query = select(pins).where(pins.c.flag == flag).order_by(pins.c.deployment, pins.c.pinned_us, pins.c.id)
    found = [
        Generation(deployment=pin["deployment"], generation=pin["generation"], pin=pin)
        for pin in conn.execute(query).mappings()
    ]
    _add_transfers(conn, found)
    _add_engines(conn, found)
    _add_events(conn, found)
    found.sort(key=lambda one: (one.deployment, one.since_us))
    for one in {one.deployment: one for one in found}.values():
        one.latest = True
    return found


def _add_transfers(conn: Connection, found: list[Generation]) -> None:
    pinned: dict[tuple[str, str], list[Generation]] = defaultdict(list)
    for one in found:
        pinned[one.deployment, one.generation].append(one)
    undecided: dict[tuple[str, str], Generation] = {}
    rows = rolled(conn)
    while some := list(islice(rows, _TOGETHER)):
        parts: dict[int, tuple[Generation, list[Measures]]] = {}
        for row in some:
            place = (row.key.deployment, row.key.generation)
            owner = _owner(pinned[place], row)
            if owner is None:
                owner = undecided.setdefault(place, Generation(deployment=place[0], generation=place[1]))
            parts.setdefault(id(owner), (owner, [owner.totals]))[1].append(row.measures)
        for owner, measured in parts.values():
            owner.totals = merge(measured)
    found.extend(undecided.values())


def _owner(candidates: Sequence[Generation], row: Rolled) -> Generation | None:
    """Whose transfers these are: the epoch's. An engine without a decision (forced, cut off) sends none: by the day, so
    that it makes no difference how far they are merged."""
    for one in candidates:
        if one.pin and one.pin["epoch"] == row.key.epoch:
            return one
    ends_us = DAY.start(row.start_us) + DAY.length_us
    begun = [one for one in candidates if one.since_us < ends_us]
    return begun[-1] if begun and not row.key.epoch else None


def _add_engines(conn: Connection, found: Iterable[Generation]) -> None:
    every: dict[tuple[str, str], list[RowMapping]] = defaultdict(list)
    for engine in conn.execute(select(engines).order_by(engines.c.engine_id)).mappings():
        every[engine["deployment"] or "", engine["generation"]].append(engine)
    for one in found:
        closed_us = one.pin["closed_us"] if one.pin else None
        one.engines = [
            engine
            for engine in every[one.deployment, one.generation]
            if engine["lease_until_us"] >= one.since_us and (closed_us is None or engine["first_us"] <= closed_us)
        ]


def _add_events(conn: Connection, found: Iterable[Generation]) -> None:
    places = told(conn, {one.deployment for one in found})
    for one in found:
        one.told = places.get((one.deployment, one.generation, one.pin["epoch"] if one.pin else 0), one.told)
