# SPDX-License-Identifier: Apache-2.0
"""From the wire to rows: every part of a span arrives, and what cannot be stored is counted with its reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from kvflags_collector.ingest.decode import Decoded, Mismatch, decode
from kvflags_collector.ingest.limits import Refused
from kvflags_collector.store.telemetry_tables import spans

COLUMNS = [column.name for column in spans.columns]
RESOURCE = {
    "service.name": "vllm",
    "kvflags.deployment": "c/ns/a",
    "kvflags.generation": "r1",
    "kvflags.epoch": 2,
    "kvflags.engine": "decode-0",
    "kvflags.attention.backend": "FLASH_ATTN",
}
SPAN = {
    "feature_flag.key": "cross-layer-blocks",
    "feature_flag.result.variant": "on",
    "feature_flag.version": "7",
    "feature_flag.context.id": "c/ns/a",
    "kvflags.arm": "treatment",
    "kvflags.effective": True,
    "kvflags.rank": 0,
    "kvflags.world_size": 1,
    "kvflags.transfer.bytes": 65_536,
    "kvflags.transfer.descriptors": 4,
    "kvflags.transfer.blocks": 4,
    "kvflags.transfer.post_time": 12_000,
    "kvflags.transfer.mode": "pull",
    "kvflags.role": "decode",
    "kvflags.remote.engine": "prefill-0",
}


def _row(decoded: Decoded) -> dict[str, object]:
    [row] = decoded.rows
    given = decoded.constants | dict(zip(decoded.names, row, strict=True))
    assert given.keys() <= set(COLUMNS)
    return {column: given.get(column) for column in COLUMNS}


def test_every_attribute_of_a_transfer_has_its_column(request_of, noon):
    decoded = decode(request_of({"attributes": SPAN, "kind": 3}, resource=RESOURCE).SerializeToString(), noon)
    [(fingerprint, resource)] = decoded.resources.items()
    assert json.loads(resource) == RESOURCE
    assert _row(decoded) == {
        "start_ns": noon + 1,
        "trace_id": b"\0" * 15 + b"\1",
        "span_id": b"\0" * 7 + b"\1",
        "end_ns": noon + 1_000_001,
        "name": "kv.transfer",
        "kind": 3,
        "status": 0,
        "error_type": None,
        "flag": "cross-layer-blocks",
        "flag_version": "7",
        "variant": "on",
        "arm": "treatment",
        "deployment": "c/ns/a",
        "generation": "r1",
        "epoch": 2,
        "engine_id": "decode-0",
        "remote_engine": "prefill-0",
        "role": "decode",
        "mode": "pull",
        "rank": 0,
        "world_size": 1,
        "bytes": 65_536,
        "descriptors": 4,
        "blocks": 4,
        "post_ns": 12_000,
        "effective": True,
        "backend": "FLASH_ATTN",
        "resource": fingerprint,
        "attributes": None,
        "received_us": noon // 1000,
    }
    assert (decoded.minutes, decoded.ranked, decoded.mismatches) == ({(noon // 1000, "c/ns/a")}, set(), set())


def test_a_foreign_span_is_kept_whole(request_of, noon):
    span = {
        "name": "GET /",
        "parent_span_id": b"\7" * 8,
        "trace_state": "ot=th:c",
        "status": Status(code=2, message="teapot"),
        "links": [Span.Link(trace_id=b"\1" * 16, span_id=b"\2" * 8, attributes=[KeyValue(key="k", value=AnyValue())])],
        "events": [Span.Event(time_unix_nano=5, name="e")],
        "attributes": {"http.status": 418, "kvflags.rank": "none", "nan": float("nan"), "raw": b"\xff"},
    }
    request = request_of(span)
    request.resource_spans[0].scope_spans[0].scope.name = "mine"
    nested = AnyValue(array_value=ArrayValue(values=[AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="x")]))]))
    request.resource_spans[0].scope_spans[0].spans[0].attributes.append(KeyValue(key="deep", value=nested))
    decoded = decode(request.SerializeToString(), noon)
    row = _row(decoded)
    assert json.loads(str(row["attributes"])) == {
        "http.status": 418,
        "kvflags.rank": "none",
        "nan": "nan",
        "raw": "/w==",
        "deep": [{"x": None}],
        "otel.scope.name": "mine",
        "otel.parent_span_id": "07" * 8,
        "otel.trace_state": "ot=th:c",
        "otel.status_description": "teapot",
        "otel.links": [{"trace_id": "01" * 16, "span_id": "02" * 8, "attributes": {"k": None}}],
        "otel.events": [{"name": "e", "time_ns": 5, "attributes": {}}],
    }
    assert (row["name"], row["status"], row["deployment"], decoded.minutes) == ("GET /", 2, "", set())


def test_spans_that_cannot_be_stored_are_counted_by_reason(request_of, noon):
    day = 86_400 * 10**9
    spans = [
        {"trace_id": b""},
        {"trace_id": b"\0" * 16},
        {"span_id": b"short"},
        {"start_time_unix_nano": 0},
        {"start_time_unix_nano": noon - 7 * day - 1},
        {"start_time_unix_nano": noon + day // 24 + 1},
        {"end_time_unix_nano": 1 << 63},
        {"start_time_unix_nano": noon - 7 * day},
        {"start_time_unix_nano": noon + day // 24},
    ]
    decoded = decode(request_of(*spans).SerializeToString(), noon)
    assert len(decoded.rows) == 2
    assert decoded.rejected == {
        "with an id that is not 16 and 8 bytes long, or all zeros": 3,
        "that started more than 7 days ago or more than an hour ahead": 3,
        "that ends beyond the year 2262": 1,
    }


def test_what_would_spoil_a_sum_or_a_key_stays_in_the_residue(request_of, noon):
    odd = {"kvflags.transfer.bytes": -1, "kvflags.arm": "x" * 513}
    row = _row(decode(request_of({"attributes": odd}).SerializeToString(), noon))
    assert (row["bytes"], row["arm"], json.loads(str(row["attributes"]))) == (None, "", odd)


def test_ranks_and_failed_handshakes_are_noted(request_of, noon):
    failed = {"kvflags.layout.mismatch": True, "kvflags.remote.engine": "prefill-0"}
    request = request_of({"attributes": {"kvflags.world_size": 2}}, {"attributes": failed}, resource=RESOURCE)
    decoded = decode(request.SerializeToString(), noon)
    assert decoded.ranked == {b"\0" * 15 + b"\1"}
    assert decoded.mismatches == {Mismatch("c/ns/a", "r1", 2, "decode-0", "prefill-0")}


def test_equal_resources_share_a_fingerprint(request_of, noon):
    turned = dict(reversed(RESOURCE.items()))
    one, other = (decode(request_of({}, resource=r).SerializeToString(), noon) for r in (RESOURCE, turned))
    assert one.resources == other.resources


def test_an_empty_request_has_no_rows(noon):
    decoded = decode(b"", noon)
    assert (decoded.rows, decoded.resources, decoded.rejected) == ([], {}, {})
    assert not decoded


@pytest.mark.parametrize("body", [b"\xff", b"not protobuf", b"\x0a\x7f"])
def test_garbage_is_refused(body, noon):
    with pytest.raises(Refused) as caught:
        decode(body, noon)
    assert caught.value.status == 400


def _rows_or_400(body: bytes) -> int:
    """How many rows a body gives; 0 where it is refused as undecodable. Nothing else may happen."""
    try:
        return len(decode(body, 0).rows)
    except Refused as refusal:
        if refusal.status != 400:
            raise
        return 0


@given(st.binary(max_size=300))
def test_no_body_makes_anything_but_rows_or_a_refusal(body):
    _rows_or_400(body)


@given(st.data())
def test_a_damaged_request_makes_rows_or_a_refusal(data):
    span = Span(
        trace_id=b"\1" * 16, span_id=b"\2" * 8, name="kv.transfer", start_time_unix_nano=1, end_time_unix_nano=2
    )
    span.attributes.extend(KeyValue(key=key, value=AnyValue(string_value="a")) for key in SPAN)
    scopes = [ScopeSpans(spans=[span])]
    whole = ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=scopes)]).SerializeToString()
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:at] + bytes([data.draw(st.integers(0, 255))]) + whole[at + 1 :]
    assert _rows_or_400(damaged) <= 1
    assert _rows_or_400(whole[:at]) <= 1
