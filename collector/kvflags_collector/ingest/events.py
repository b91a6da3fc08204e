# SPDX-License-Identifier: Apache-2.0
"""Events from the wire to rows. Pure; for any thread. Log records that are not kvflags' events are not kept."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from sqlalchemy import Connection

from kvflags.telemetry.attributes import Name
from kvflags.telemetry.events import EventName
from kvflags_collector.ingest.identity import Identity, identity
from kvflags_collector.ingest.limits import timely
from kvflags_collector.ingest.signals import LOGS
from kvflags_collector.ingest.spans.residue import everything
from kvflags_collector.store.events import insert_events

__all__ = ["Events", "decode"]

_NAMES = frozenset(EventName)
# A record of ours is a few hundred bytes.
_LONGEST = 16 * 1024
# Before events had a field for their name it stood here.
_LEGACY_NAME = "event.name"
# Earlier releases of the semantic conventions, which some instrumentations still follow.
_RENAMED = {
    "feature_flag.variant": Name.VARIANT,
    "feature_flag.evaluation.reason": Name.REASON,
    "feature_flag.provider_name": "feature_flag.provider.name",
    "feature_flag.evaluation.error.message": "feature_flag.error.message",
    "error.message": "feature_flag.error.message",
}


@dataclass(slots=True)
class Events:
    """One request, ready to be written. rows: as the table has them. rejected: reason -> log records."""

    size: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.rows)

    def store(self, conn: Connection) -> Counter[str]:
        """Write them; an event that is there already is left. Nothing is refused."""
        insert_events(conn, self.rows)
        return Counter()


def decode(body: bytes, now_ns: int) -> Events:
    """The events of one ExportLogsServiceRequest, received at `now_ns`.

    Raises:
        Refused: 400, where the body is no such message.
    """
    events = Events(size=len(body))
    for entry in LOGS.parse(body).resource_logs:
        who = identity(entry.resource.attributes)
        for record in (record for scope in entry.scope_logs for record in scope.log_records):
            _record(record, who, now_ns, events)
    return events


def _record(record: LogRecord, who: Identity, now_ns: int, events: Events) -> None:
    attributes = {_RENAMED.get(name, name): value for name, value in everything(record.attributes).items()}
    name = record.event_name or attributes.pop(_LEGACY_NAME, "")
    at_ns = record.time_unix_nano or record.observed_time_unix_nano
    text = json.dumps([name, at_ns, *_key(who), attributes], sort_keys=True)
    if refusal := _refusal(name, at_ns, now_ns, len(text)):
        events.rejected[refusal] += 1
        return
    events.rows.append(
        {
            "time_us": at_ns // 1000,
            "fingerprint": blake2b(text.encode(), digest_size=16).digest(),
            "name": name,
            **dict(zip(("deployment", "generation", "epoch", "engine_id"), _key(who), strict=True)),
            "rank": _rank(attributes),
            "attributes": attributes,
            "received_us": now_ns // 1000,
        }
    )


def _refusal(name: object, at_ns: int, now_ns: int, size: int) -> str:
    if name not in _NAMES:
        return "that are not kvflags' events"
    if not timely(at_ns, now_ns):
        return "from more than 7 days ago or more than an hour ahead"
    return f"larger than {_LONGEST} bytes" if size > _LONGEST else ""


def _key(who: Identity) -> tuple[str, str, int, str]:
    return who.deployment, who.generation, who.epoch, who.engine


def _rank(attributes: dict[str, Any]) -> int:
    rank = attributes.get(Name.RANK, 0)
    return rank if isinstance(rank, int) and rank >= 0 else 0
