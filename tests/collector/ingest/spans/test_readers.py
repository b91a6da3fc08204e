# SPDX-License-Identifier: Apache-2.0
"""The native reader, the fallback and a plain walk over protobuf's own messages agree on every body."""

from __future__ import annotations

import json
import os
import random
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from kvflags_collector.ingest.limits import Refused
from kvflags_collector.ingest.spans import native
from kvflags_collector.ingest.spans import read as reading
from kvflags_collector.ingest.spans.decode import Decoded, decode
from kvflags_collector.ingest.spans.slots import RESOURCE_SLOTS, SPAN_SLOTS

NOON = 1_798_891_200 * 10**9
KEYS = [*SPAN_SLOTS, *RESOURCE_SLOTS, "kvflags.layout.mismatch", "http.route", "", "\N{SNOWMAN}", "nul\0key"]

texts = st.sampled_from(["", "a", "on", "c/ns/a", "\N{SNOWMAN}", "nul\0", "x" * 512, "x" * 513]) | st.text(max_size=5)
scalars = st.one_of(
    st.builds(lambda v: AnyValue(string_value=v), texts),
    st.builds(lambda v: AnyValue(int_value=v), st.integers(-2, 3) | st.integers(-(2**63), 2**63 - 1)),
    st.builds(lambda v: AnyValue(bool_value=v), st.booleans()),
    st.builds(lambda v: AnyValue(double_value=v), st.floats()),
    st.builds(lambda v: AnyValue(bytes_value=v), st.binary(max_size=4)),
    st.just(AnyValue()),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.builds(lambda vs: AnyValue(array_value=ArrayValue(values=vs)), st.lists(inner, max_size=3)),
        st.builds(
            lambda vs: AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key=k, value=v) for k, v in vs.items()])),
            st.dictionaries(texts, inner, max_size=3),
        ),
    ),
    max_leaves=4,
)
attributes = st.lists(
    st.builds(lambda key, value: KeyValue(key=key, value=value), st.sampled_from(KEYS), values) | st.just(KeyValue()),
    max_size=6,
)
links = st.builds(
    lambda t, s, a: Span.Link(trace_id=t, span_id=s, attributes=a),
    st.binary(max_size=3),
    st.binary(max_size=3),
    attributes,
)
events = st.builds(
    lambda n, t, a: Span.Event(name=n, time_unix_nano=t, attributes=a), texts, st.integers(0, 9), attributes
)
spans = st.builds(
    Span,
    trace_id=st.sampled_from([b"\1" * 16, b"\2" * 16, b"\3" * 16, b"\0" * 16, b"short", b""]),
    span_id=st.sampled_from([b"\1" * 8, b"\2" * 8, b"\3" * 8, b"\0" * 8, b"\1" * 9]),
    name=st.just("kv.transfer") | texts,
    kind=st.integers(0, 5),
    start_time_unix_nano=st.sampled_from([NOON, NOON + 61 * 10**9, NOON - 5, 0, 2**64 - 1]),
    end_time_unix_nano=st.sampled_from([NOON, 0, 2**63 - 1, 2**63]),
    attributes=attributes,
    trace_state=st.just("") | texts,
    parent_span_id=st.binary(max_size=2),
    links=st.lists(links, max_size=2),
    events=st.lists(events, max_size=2),
    status=st.none() | st.builds(Status, code=st.integers(0, 2), message=st.just("") | texts),
    dropped_attributes_count=st.sampled_from([0, 0, 3]),
)
scopes = st.builds(
    ScopeSpans,
    scope=st.none() | st.builds(InstrumentationScope, name=st.sampled_from(["", "kvflags", "mine"])),
    spans=st.lists(spans, max_size=4),
)
requests = st.builds(
    ExportTraceServiceRequest,
    resource_spans=st.lists(
        st.builds(
            ResourceSpans,
            resource=st.none() | st.builds(Resource, attributes=attributes),
            scope_spans=st.lists(scopes, max_size=2),
        ),
        max_size=3,
    ),
)


def _with(monkeypatch: pytest.MonkeyPatch, reader: Any, body: bytes) -> Decoded | str:
    """What a body gives when only one reader is there."""
    monkeypatch.setattr(reading, "_NATIVE", reader)
    monkeypatch.setattr(reading, "_SMALL", 0)
    try:
        return decode(body, NOON)
    except Refused as refusal:
        return refusal.message


def _agree(body: bytes) -> None:
    """Both give the same. But ptars lets pass, unread, a few malformed fields of unknown numbers (groups without their
    end), for which protobuf refuses the body.
    """
    with pytest.MonkeyPatch.context() as patch:
        one, other = _with(patch, native.read, body), _with(patch, None, body)
    assert one == other or (isinstance(one, Decoded) and isinstance(other, str))


def _rows(decoded: Decoded) -> list[dict[str, Any]]:
    rows = [decoded.constants | dict(zip(decoded.names, row, strict=True)) for row in decoded.rows]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _plain(value: AnyValue) -> Any:
    """An AnyValue as JSON, by the definition."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(one) for one in value.array_value.values]
    if kind == "kvlist_value":
        return {one.key.replace("\0", "\ufffd"): _plain(one.value) for one in value.kvlist_value.values}
    if kind == "bytes_value":
        return b64encode(value.bytes_value).decode()
    if kind == "double_value":
        return value.double_value if abs(value.double_value) < float("inf") else str(value.double_value)
    if kind == "string_value":
        return value.string_value.replace("\0", "\ufffd")
    return getattr(value, kind) if kind else None


def _walk(request: ExportTraceServiceRequest) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Columns and residue of the attributes of each span that may be stored."""
    walked = []
    for entry in request.resource_spans:
        for span in (span for scope in entry.scope_spans for span in scope.spans):
            ids = (len(span.trace_id), len(span.span_id)) == (16, 8) and any(span.trace_id) and any(span.span_id)
            times = abs(span.start_time_unix_nano - NOON) < 3600 * 10**9 and span.end_time_unix_nano < 2**63
            if not (ids and times):
                continue
            row: dict[str, Any] = {"start_ns": span.start_time_unix_nano, "end_ns": span.end_time_unix_nano}
            residue: dict[str, Any] = {}
            for slots, sent in ((RESOURCE_SLOTS, entry.resource.attributes), (SPAN_SLOTS, span.attributes)):
                for attribute in sent:
                    _place(slots, attribute, row, residue if slots is SPAN_SLOTS else {})
            walked.append((row, residue))
    return walked


def _place(slots: dict[str, Any], attribute: KeyValue, row: dict[str, Any], residue: dict[str, Any]) -> None:
    slot = slots.get(attribute.key)
    if slot and attribute.value.WhichOneof("value") == slot.kind:
        value = getattr(attribute.value, slot.kind)
        if len(value) <= 512 if isinstance(value, str) else value >= 0:
            row[slot.column] = value.replace("\0", "\ufffd") if isinstance(value, str) else value
            return
    residue[attribute.key.replace("\0", "\ufffd")] = _plain(attribute.value)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
@given(requests)
def test_readers_agree_with_each_other_and_with_a_plain_walk(request):
    body = request.SerializeToString()
    _agree(body)
    expected = _walk(request)
    found = _rows(decode(body, NOON))
    assert len(found) == len(expected)
    for row, (columns, residue) in zip(found, expected, strict=True):
        assert row | columns == row
        kept = json.loads(row.get("attributes", "{}"))
        assert {key: value for key, value in kept.items() if not key.startswith("otel.")} == residue


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_readers_agree_on_any_bytes(body):
    _agree(body)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
@given(requests, st.integers(0, 2**32))
def test_readers_agree_on_damaged_requests(request, seed):
    _agree(damaged(request.SerializeToString(), random.Random(seed)))


def test_readers_agree_on_many_broken_requests():
    """Seeded; `make soak` takes a million."""
    chance = random.Random(int(os.environ.get("KVFLAGS_SOAK_SEED", "1")))
    for _ in range(int(os.environ.get("KVFLAGS_SOAK_REQUESTS", "500"))):
        _agree(damaged(_usual(chance), chance))


def _usual(chance: random.Random) -> bytes:
    """One or two engines' transfers, some with a link, an event or an attribute that has no column."""
    request = ExportTraceServiceRequest()
    for _ in range(chance.randint(1, 2)):
        entry = request.resource_spans.add()
        entry.resource.attributes.add(key="kvflags.deployment").value.string_value = "c/ns/a"
        scope = entry.scope_spans.add()
        for _ in range(chance.randint(1, 3)):
            span = scope.spans.add(trace_id=chance.randbytes(16), span_id=chance.randbytes(8), name="kv.transfer")
            span.start_time_unix_nano = span.end_time_unix_nano = NOON
            for key, slot in chance.sample(list(SPAN_SLOTS.items()), 4):
                value = {"string_value": "v", "int_value": chance.randint(0, 300), "bool_value": True}[slot.kind]
                span.attributes.add(key=key, value=AnyValue(**{slot.kind: value}))
            if chance.random() < 0.3:
                span.links.add(trace_id=b"\1" * 16).attributes.add(key="k")
                span.events.add(name="e")
                span.attributes.add(key="foreign").value.array_value.values.add().int_value = 3
    return request.SerializeToString()


def damaged(body: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, taken out or put in, or the end missing."""
    parts = bytearray(body)
    for _ in range(chance.randint(1, 3)):
        at = chance.randint(0, len(parts))
        parts[at : at + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 2))
    return bytes(parts[: chance.randint(0, len(parts))] if chance.random() < 0.2 else parts)
