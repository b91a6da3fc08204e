# SPDX-License-Identifier: Apache-2.0
"""What each generation of each deployment was told, and what its engines made of it. Reads only.

One `Generation` for every pin of a flag; a report adds what they transferred.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, RowMapping, select

from kvflags.flags import Comparison
from kvflags_collector.store.control_tables import engines, pins
from kvflags_collector.store.events import Told, told
from kvflags_collector.store.measures import NOTHING, Measures

__all__ = ["Generation", "add_engines", "generations"]


@dataclass(slots=True, kw_only=True)
class Generation:
    """pin: its row in the ledger, None where nothing was decided. engines: rows of those that ran under it.

    layout: what those say together, filled in by `layout.look`. told: what its events add up to.
    totals: what it transferred, where a report asked.
    """

    deployment: str
    generation: str
    pin: Mapping[Any, Any] | None = None
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
    for one in {one.deployment: one for one in found}.values():
        one.latest = True
    add_engines(conn, found)
    return found


def add_engines(conn: Connection, found: Sequence[Generation]) -> None:
    """Fill in what ran under each, and what that told of itself."""
    _add_engines(conn, found)
    _add_events(conn, found)


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
