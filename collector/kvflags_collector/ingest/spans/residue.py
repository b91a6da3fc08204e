# SPDX-License-Identifier: Apache-2.0
"""What of a span or resource has no column, as plain JSON, within limits.

Limits per span, event, link and resource, after the SDK's own (attribute count) and with bounds where the
specification sets none: what is dropped or cut is counted under `otel.dropped_attributes_count`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from math import isfinite
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from kvflags_collector.ingest.spans.wire import Parts

__all__ = ["ATTRIBUTES", "DROPPED", "EVENTS", "clean", "compact", "document", "everything", "plain", "uncommon"]

ATTRIBUTES = EVENTS = 128
DROPPED = "otel.dropped_attributes_count"
_KEY = 256
_TEXT = 4096
# A value of values has no length of its own; this is 16 of the longest strings.
_NESTED = 65536


def clean(text: str) -> str:
    """PostgreSQL stores no NUL, and what one database cannot store the other should not either."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


def document(attributes: Iterable[KeyValue], dropped: int = 0) -> dict[str, Any]:
    """Attributes as plain JSON values, with the number of those dropped or cut, `dropped` included, if any."""
    made: dict[str, Any] = {}
    for number, attribute in enumerate(attributes):
        key, value, whole = plain(attribute) if number < ATTRIBUTES else ("", None, False)
        if key or whole:
            made[key] = value
        dropped += not whole
    return made | ({DROPPED: dropped} if dropped else {})


def everything(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    """Attributes as plain JSON values, whatever their number and length: the caller bounds the whole."""
    return {clean(attribute.key): _plain(attribute.value, None) for attribute in attributes}


def plain(attribute: KeyValue) -> tuple[str, object, bool]:
    """Key, JSON value, and whether that is all of it. An attribute that is dropped has no key."""
    if len(attribute.key) > _KEY or (attribute.value.ByteSize() > _NESTED and _nested(attribute.value)):
        return "", None, False
    value = _plain(attribute.value, _TEXT)
    cut = attribute.value.WhichOneof("value") in ("string_value", "bytes_value") and _too_long(attribute.value)
    return clean(attribute.key), value, not cut


def _nested(value: AnyValue) -> bool:
    return value.WhichOneof("value") in ("array_value", "kvlist_value")


def _too_long(value: AnyValue) -> bool:
    return len(value.string_value) > _TEXT or len(value.bytes_value) > _TEXT


def _plain(value: AnyValue, longest: int | None) -> object:
    """An AnyValue as JSON, text and bytes cut to `longest`.

    Bytes are in base64, numbers that JSON lacks are named, as protobuf's own JSON writes them.
    """
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return clean(value.string_value[:longest])
    if kind == "array_value":
        return [_plain(item, longest) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {clean(item.key): _plain(item.value, longest) for item in value.kvlist_value.values}
    if kind == "bytes_value":
        return b64encode(value.bytes_value[:longest]).decode()
    if kind == "double_value" and not isfinite(value.double_value):
        return str(value.double_value)
    return getattr(value, kind) if kind else None


def uncommon(parts: Parts) -> dict[str, Any]:
    """The parts of a span that are no attributes, under `otel.*`, so that nothing a client sends is lost.

    Raises:
        UnicodeDecodeError, google.protobuf.message.DecodeError: one of them cannot be read.
    """
    texts = {"otel.trace_state": parts.trace_state, "otel.status_description": parts.message}
    made: dict[str, Any] = {name: clean(text.decode()[:_TEXT]) for name, text in texts.items() if text}
    if parts.parent_span_id:
        made["otel.parent_span_id"] = parts.parent_span_id.hex()
    if parts.links:
        made["otel.links"] = [_link(Span.Link.FromString(raw)) for raw in parts.links]
    if parts.events:
        made["otel.events"] = [_event(Span.Event.FromString(raw)) for raw in parts.events]
    for name, number in (("links", parts.more_links), ("events", parts.more_events)):
        if number:
            made[f"otel.dropped_{name}_count"] = number
    return made


def _link(link: Span.Link) -> dict[str, Any]:
    ends = {"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex()}
    return ends | ({"attributes": document(link.attributes)} if link.attributes else {})


def _event(event: Span.Event) -> dict[str, Any]:
    attributes = document(event.attributes)
    return {"name": clean(event.name[:_TEXT]), "time_ns": event.time_unix_nano, "attributes": attributes}


def compact(value: dict[str, Any]) -> str:
    """Canonical JSON, so that equal resources have equal fingerprints."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
