# SPDX-License-Identifier: Apache-2.0
"""Events as stored, and the questions that reports ask of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, RowMapping, Table, select
from sqlalchemy.dialects import postgresql, sqlite

from kvflags.telemetry.attributes import Name
from kvflags.telemetry.events import EventName
from kvflags_collector.store.outcome_tables import events

__all__ = ["Place", "Told", "insert_events", "told"]

# Values bound in one statement; SQLite takes 32,766.
_BATCH = 500
# Deployment, generation, epoch.
Place = tuple[str, str, int]
_INSERT: dict[str, Callable[[Table], Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


@dataclass(slots=True)
class Told:
    """What ranks other than 0 told of one generation's epoch, and what its prefill engines gave up.

    effective: engine -> rank -> whether it registered whole rows. dropped_spans: that those ranks could not send.
    expired: requests whose KV blocks nobody fetched in time.
    """

    effective: dict[str, dict[int, bool]] = field(default_factory=lambda: defaultdict(dict))
    dropped_spans: int = 0
    expired: int = 0

    def every_rank(self, engine: str, ranks: int) -> bool | None:
        """Whether all ranks of an engine of so many are effective; None while some have not told.

        Rank 0 is not asked: what it registered, its peers have from the same decision, and it tells no more than they.
        """
        told = self.effective.get(engine, {})
        if not all(told.values()):
            return False
        return True if ranks > 1 and told.keys() >= set(range(1, ranks)) else None


def insert_events(conn: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Rows of the table. One that is there already is left: a record sent again counts once. Writes."""
    if rows:
        # In one order, since collectors that store the same records wait for each other's rows.
        conn.execute(_INSERT[conn.dialect.name](events).on_conflict_do_nothing(), sorted(rows, key=_key))


def _key(row: Mapping[str, Any]) -> tuple[int, bytes]:
    return row["time_us"], row["fingerprint"]


def told(conn: Connection, deployments: Collection[str]) -> dict[Place, Told]:
    """All that the events of these deployments add up to. Reads."""
    places: dict[Place, Told] = defaultdict(Told)
    for row in _rows(conn, deployments):
        attributes, place = row["attributes"], places[row["deployment"], row["generation"], row["epoch"]]
        if row["name"] == EventName.FACT:
            _take_fact(place, row)
        elif row["name"] == EventName.EXPIRED:
            place.expired += _whole(attributes.get(Name.EXPIRED))
        elif row["rank"]:
            # Rank 0 says it in heartbeats.
            place.dropped_spans += _whole(attributes.get(Name.DROPPED_SPANS))
    return places


def _take_fact(place: Told, row: RowMapping) -> None:
    effective = row["attributes"].get(Name.EFFECTIVE)
    if row["rank"] and isinstance(effective, bool):
        place.effective[row["engine_id"]][row["rank"]] = effective


def _rows(conn: Connection, deployments: Collection[str]) -> Iterator[RowMapping]:
    """The oldest first, so that the last word of a rank is the one that stays."""
    known = sorted(deployments)
    for at in range(0, len(known), _BATCH):
        query = (
            select(events)
            .where(events.c.deployment.in_(known[at : at + _BATCH]), events.c.name != EventName.EVALUATION)
            .order_by(events.c.time_us)
        )
        yield from conn.execute(query).mappings()


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
