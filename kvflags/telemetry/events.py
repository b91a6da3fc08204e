# SPDX-License-Identifier: Apache-2.0
"""The one table of events, which engines send as OTLP log records; the collector keeps these and no other logs.

The name is the record's `event_name`. The resource says deployment, generation, epoch and engine, as on spans.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvflags.telemetry.attributes import Name

__all__ = ["EVENTS", "Event", "EventName"]


class EventName(StrEnum):
    """The names as constants."""

    EVALUATION = "feature_flag.evaluation"
    FACT = "kvflags.engine.fact"
    DROPS = "kvflags.drops"
    EXPIRED = "kvflags.transfer.expired"


@dataclass(frozen=True, slots=True)
class Event:
    """One row: when it is sent, and the attributes that stand on it."""

    name: EventName
    meaning: str
    attributes: tuple[str, ...]


EVENTS: tuple[Event, ...] = (
    Event(
        EventName.EVALUATION,
        "Once at the start and on change: the decision that the engine runs under",
        (Name.FLAG, Name.VARIANT, Name.REASON, Name.FLAG_VERSION, Name.CONTEXT, Name.ARM, Name.ERROR_TYPE),
    ),
    Event(
        EventName.FACT,
        "From ranks other than 0, which send no heartbeat: what the rank registered",
        (Name.RANK, Name.WORLD_SIZE, Name.EFFECTIVE),
    ),
    Event(
        EventName.DROPS,
        "What this rank could not send since its last such event; rank 0 says it in heartbeats",
        (Name.RANK, Name.DROPPED_SPANS, Name.DROPPED_EVENTS),
    ),
    Event(
        EventName.EXPIRED,
        "Prefill gave up KV blocks that no decode engine had fetched in time",
        (Name.RANK, Name.EXPIRED),
    ),
)
