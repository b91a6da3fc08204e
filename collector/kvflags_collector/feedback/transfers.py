# SPDX-License-Identifier: Apache-2.0
"""What each generation transferred, from roll-ups. Reads only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

from sqlalchemy import Connection

from kvflags_collector.judge.generations import Generation, add_engines
from kvflags_collector.judge.layout import leave_out
from kvflags_collector.store.current import Rolled, days, rolled
from kvflags_collector.store.levels import DAY
from kvflags_collector.store.measures import Measures, merge

__all__ = ["add"]

# Roll-up rows added up at once: some for each of a thousand deployments, in about 20 MB.
_TOGETHER = 20_000


def add(conn: Connection, found: Sequence[Generation], *, days_until_us: int | None = None) -> list[Generation]:
    """The same generations with their totals, and one for whatever was transferred where nothing was decided.

    By deployment, the oldest first. days_until_us: only from whole days that begin before it, and nothing of engines.
    """
    undecided = _add_transfers(found, rolled(conn) if days_until_us is None else days(conn, days_until_us))
    if undecided and days_until_us is None:
        add_engines(conn, undecided)
    elif undecided:
        leave_out(undecided)
    known = {one.deployment for one in found}
    for one in {one.deployment: one for one in undecided if one.deployment not in known}.values():
        one.latest = True
    return sorted([*found, *undecided], key=lambda one: (one.deployment, one.since_us))


def _add_transfers(found: Sequence[Generation], rows: Iterator[Rolled]) -> list[Generation]:
    pinned: dict[tuple[str, str], list[Generation]] = defaultdict(list)
    for one in found:
        pinned[one.deployment, one.generation].append(one)
    undecided: dict[tuple[str, str], Generation] = {}
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
    return list(undecided.values())


def _owner(candidates: Sequence[Generation], row: Rolled) -> Generation | None:
    """Whose transfers these are: the epoch's. An engine without a decision (forced, cut off) sends none: by the day, so
    that it makes no difference how far they are merged."""
    for one in candidates:
        if one.pin and one.pin["epoch"] == row.key.epoch:
            return one
    ends_us = DAY.start(row.start_us) + DAY.length_us
    begun = [one for one in candidates if one.since_us < ends_us]
    return begun[-1] if begun and not row.key.epoch else None
