# SPDX-License-Identifier: Apache-2.0
"""From the wire to rows: the one place that knows protobuf. Pure, and safe to run in any thread.

Every span is kept, also those of other OTLP clients: what has a column goes there, the rest into the residue (JSON),
under its own name or, for parts of a span that are no attributes, under `otel.*`.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from kvflags.telemetry.attributes import SCOPE_NAME, SPAN_NAME, Name
from kvflags_collector.ingest.columns import AT, COLUMNS, RESOURCE_SLOTS, SPAN_SLOTS, document, fill
from kvflags_collector.ingest.limits import Refused

__all__ = ["COLUMNS", "Decoded", "Mismatch", "decode"]

_DAY_NS, _HOUR_NS, _MINUTE_NS = 86_400 * 10**9, 3_600 * 10**9, 60 * 10**9
_INT64 = 1 << 63

_START, _END, _NAME, _KIND, _STATUS = AT["start_ns"], AT["end_ns"], AT["name"], AT["kind"], AT["status"]
_TRACE, _SPAN, _RESIDUE, _WORLD_SIZE = AT["trace_id"], AT["span_id"], AT["attributes"], AT["world_size"]
_DEPLOYMENT, _GENERATION, _EPOCH = AT["deployment"], AT["generation"], AT["epoch"]
_ENGINE, _REMOTE_ENGINE = AT["engine_id"], AT["remote_engine"]


class Mismatch(NamedTuple):
    """A handshake that failed because the layouts differ, and between whom."""

    deployment: str
    generation: str
    epoch: int
    local_engine: str
    remote_engine: str


@dataclass(slots=True)
class Decoded:
    """One request, ready to be written.

    size: bytes of the body. rows: tuples in the order of COLUMNS. resources: fingerprint -> JSON. minutes: the
    (minute_us, deployment) that the transfers among the rows make dirty. ranked: trace ids of transfers made by several
    ranks. rejected: reason -> spans.
    """

    size: int = 0
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    resources: dict[bytes, str] = field(default_factory=dict)
    minutes: set[tuple[int, str]] = field(default_factory=set)
    ranked: set[bytes] = field(default_factory=set)
    mismatches: set[Mismatch] = field(default_factory=set)
    rejected: Counter[str] = field(default_factory=Counter)


def decode(body: bytes, now_ns: int) -> Decoded:
    """The rows of one ExportTraceServiceRequest, received at `now_ns`.

    Raises:
        Refused: 400, where the body is no such message (also: text that is not UTF-8, nesting beyond 100 levels).
    """
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as problem:
        raise Refused(400, f"the body is not an ExportTraceServiceRequest: {problem}") from None
    decoded = Decoded(size=len(body))
    for entry in request.resource_spans:
        template = _template(entry.resource, now_ns, decoded)
        for scope in entry.scope_spans:
            _scope(scope, template, now_ns, decoded)
    return decoded


def _template(resource: Resource, now_ns: int, decoded: Decoded) -> list[Any]:
    """The row that every span of a resource starts from. The resource is stored whole, once, under its fingerprint."""
    text = _json(document(resource.attributes))
    fingerprint = blake2b(text.encode(), digest_size=16).digest()
    decoded.resources[fingerprint] = text
    row: list[Any] = [None] * len(COLUMNS)
    for label in ("arm", "deployment", "generation", "engine_id", "backend"):
        row[AT[label]] = ""
    row[_EPOCH], row[AT["resource"]], row[AT["received_us"]] = 0, fingerprint, now_ns // 1000
    fill(row, RESOURCE_SLOTS, resource.attributes)
    return row


def _scope(scope: ScopeSpans, template: list[Any], now_ns: int, decoded: Decoded) -> None:
    foreign = {"otel.scope.name": scope.scope.name} if scope.scope.name not in ("", SCOPE_NAME) else {}
    for span in scope.spans:
        refusal = _refusal(span, now_ns)
        if refusal:
            decoded.rejected[refusal] += 1
            continue
        row = template.copy()
        residue = fill(row, SPAN_SLOTS, span.attributes) | _uncommon(span) | foreign
        row[_START], row[_END] = span.start_time_unix_nano, span.end_time_unix_nano
        row[_TRACE], row[_SPAN], row[_NAME] = span.trace_id, span.span_id, span.name
        row[_KIND], row[_STATUS] = span.kind, span.status.code
        row[_RESIDUE] = _json(residue) if residue else None
        decoded.rows.append(tuple(row))
        if row[_NAME] == SPAN_NAME:
            _transfer(row, residue, decoded)


def _refusal(span: Span, now_ns: int) -> str:
    """Why a span cannot be stored, or ""."""
    trace_id, span_id = span.trace_id, span.span_id
    if len(trace_id) != 16 or len(span_id) != 8 or not any(trace_id) or not any(span_id):
        return "with an id that is not 16 and 8 bytes long, or all zeros"
    if not now_ns - 7 * _DAY_NS <= span.start_time_unix_nano <= now_ns + _HOUR_NS:
        return "that started more than 7 days ago or more than an hour ahead"
    return "that ends beyond the year 2262" if span.end_time_unix_nano >= _INT64 else ""


def _transfer(row: list[Any], residue: dict[str, Any], decoded: Decoded) -> None:
    deployment: str = row[_DEPLOYMENT]
    decoded.minutes.add((row[_START] // _MINUTE_NS * 60_000_000, deployment))
    if (row[_WORLD_SIZE] or 1) > 1:
        decoded.ranked.add(row[_TRACE])
    if residue.get(Name.LAYOUT_MISMATCH) is True:
        peer = row[_REMOTE_ENGINE] or ""
        decoded.mismatches.add(Mismatch(deployment, row[_GENERATION], row[_EPOCH], row[_ENGINE], peer))


def _uncommon(span: Span) -> dict[str, Any]:
    """What a `kv.transfer` span seldom has, so that nothing a client sends is lost."""
    parts: dict[str, Any] = {}
    if span.parent_span_id:
        parts["otel.parent_span_id"] = span.parent_span_id.hex()
    if span.trace_state:
        parts["otel.trace_state"] = span.trace_state
    if span.status.message:
        parts["otel.status_description"] = span.status.message
    if span.links:
        parts["otel.links"] = [_link(link) for link in span.links]
    if span.events:
        parts["otel.events"] = [_event(event) for event in span.events]
    return parts


def _link(link: Span.Link) -> dict[str, Any]:
    ends = {"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex()}
    return ends | ({"attributes": document(link.attributes)} if link.attributes else {})


def _event(event: Span.Event) -> dict[str, Any]:
    return {"name": event.name, "time_ns": event.time_unix_nano, "attributes": document(event.attributes)}


def _json(value: dict[str, Any]) -> str:
    """Canonical, so that equal resources have equal fingerprints."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
