# SPDX-License-Identifier: Apache-2.0
"""From the wire to rows: every part of a span arrives, and what cannot be stored is counted with its reason."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from kvflags_collector.ingest.limits import Refused
from kvflags_collector.ingest.spans.decode import Decoded, Mismatch, decode
from kvflags_collector.ingest.spans.outline import MOST
from kvflags_collector.ingest.spans.schema import REQUEST
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


UNREADABLE = "with text that is not UTF-8, or with a damaged part"


def _spoilt(request: ExportTraceServiceRequest, good: bytes) -> bytes:
    """The request with its only occurrence of `good` replaced by bytes of the same length that are not UTF-8."""
    body = request.SerializeToString()
    assert body.count(good) == 1
    return body.replace(good, b"\xff" * len(good))


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "spoil"},
        {"trace_state": "spoil"},
        {"status": Status(message="spoil")},
        {"attributes": {"spoil": 1}},
        {"attributes": {"foreign": "spoil"}},
        {"attributes": {"kvflags.arm": "spoil"}},
        {"events": [Span.Event(name="spoil")]},
        {"links": [Span.Link(trace_state="spoil")]},
    ],
)
def test_one_bad_string_costs_its_span_only(request_of, noon, fields):
    decoded = decode(_spoilt(request_of({}, fields, {}), b"spoil"), noon)
    assert [row[0] for row in decoded.rows] == [noon + 1, noon + 3]
    assert decoded.rejected == {UNREADABLE: 1}


def test_a_bad_string_in_a_resource_costs_the_spans_of_that_resource(request_of, noon):
    request = request_of({}, {}, resource={"kvflags.deployment": "spoil"})
    request.MergeFrom(request_of({"span_id": b"\7" * 8}, resource=RESOURCE))
    decoded = decode(_spoilt(request, b"spoil"), noon)
    assert (len(decoded.rows), len(decoded.resources), decoded.rejected) == (1, 1, {UNREADABLE: 2})


Wire = GetMessageClass(REQUEST)


def _tagged(number: int, content: bytes) -> bytes:
    """A field with a length, as protobuf writes it; content of less than 16 KiB."""
    size = len(content)
    return bytes([number << 3 | 2]) + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + content


def _nested(levels: int) -> bytes:
    """An attribute of arrays in arrays, by hand, since protobuf's own messages refuse to be made so deep."""
    value = b"\x18\x01"
    for _ in range(levels):
        value = _tagged(5, _tagged(1, value))
    return _tagged(1, b"deep") + _tagged(2, value)


@pytest.mark.parametrize(("levels", "kept"), [(40, 2), (64, 1), (2000, 1)])
def test_what_is_nested_too_deep_costs_its_span_only(request_of, noon, levels, kept):
    request = Wire.FromString(request_of({}, {}).SerializeToString())
    request.resource_spans[0].scope_spans[0].spans[0].attributes.append(_nested(levels))
    decoded = decode(request.SerializeToString(), noon)
    assert (len(decoded.rows), decoded.rejected.total()) == (kept, 2 - kept)


def test_attributes_beyond_the_limits_are_dropped_and_counted(request_of, noon):
    sizes = {"long": "v" * 4097, "raw": b"\1" * 4097, "k" * 257: 1, "fits": "v" * 4096}
    row = _row(decode(request_of({"attributes": sizes, "dropped_attributes_count": 2}).SerializeToString(), noon))
    kept = json.loads(str(row["attributes"]))
    assert kept.pop("otel.dropped_attributes_count") == 5
    assert {key: len(value) for key, value in kept.items()} == {"long": 4096, "raw": 5464, "fits": 4096}


def test_of_many_attributes_the_first_128_are_kept(request_of, noon):
    many = {f"key.{number}": number for number in range(200)} | {"kvflags.arm": "treatment"}
    row = _row(decode(request_of({"attributes": many}).SerializeToString(), noon))
    kept = json.loads(str(row["attributes"]))
    assert (kept.pop("otel.dropped_attributes_count"), row["arm"]) == (73, "")
    assert kept == {f"key.{number}": number for number in range(128)}


def test_of_many_events_and_links_the_first_128_are_kept(request_of, noon):
    many = {"events": [Span.Event(name="e")] * 130, "links": [Span.Link(trace_id=b"\1" * 16)] * 129}
    kept = json.loads(str(_row(decode(request_of(many).SerializeToString(), noon))["attributes"]))
    assert (len(kept["otel.events"]), kept["otel.dropped_events_count"]) == (128, 2)
    assert (len(kept["otel.links"]), kept["otel.dropped_links_count"]) == (128, 1)


def test_enum_values_that_nobody_defined_read_as_unspecified(request_of, noon):
    row = _row(decode(request_of({"kind": 1 << 20, "status": Status(code=7)}).SerializeToString(), noon))
    assert (row["kind"], row["status"]) == (0, 0)


def test_no_database_is_given_a_nul(request_of, noon):
    odd = {"kvflags.arm": "a\0b", "foreign": "c\0d", "k\0": 1}
    row = _row(decode(request_of({"name": "n\0", "attributes": odd}).SerializeToString(), noon))
    assert (row["name"], row["arm"]) == ("n\N{REPLACEMENT CHARACTER}", "a\N{REPLACEMENT CHARACTER}b")
    assert "\0" not in str(row["attributes"])
    assert r"\u0000" not in str(row["attributes"])


_MILLION = """
    import resource, sys
    from kvflags_collector.ingest.spans.decode import decode

    body = open(sys.argv[1], "rb").read()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    decoded = decode(body, 10**18)
    print(len(decoded.rows), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_million_attributes_take_memory_within_a_bound(tmp_path, request_of):
    request = Wire.FromString(request_of({"start_time_unix_nano": 10**18}).SerializeToString())
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.MergeFromString(b"".join(b"J\x0d\x0a\x07k%06d\x12\x02\x18\x01" % n for n in range(1_000_000)))
    body = request.SerializeToString()
    (tmp_path / "body").write_bytes(body)
    code = [sys.executable, "-c", textwrap.dedent(_MILLION), str(tmp_path / "body")]
    rows, mib = map(int, subprocess.run(code, check=True, capture_output=True, text=True, timeout=120).stdout.split())
    # 15 MB on the wire, of which 128 attributes are kept.
    assert (rows, mib < 120) == (1, True), mib


@pytest.mark.parametrize("part", [b"\x0a\x00", b"\x0a\x02\x12\x00", b"\x0a\x04\x12\x02\x12\x00"])
def test_too_many_spans_are_refused_before_they_are_read(noon, part):
    body = part * (2 * MOST)
    with pytest.raises(Refused) as caught:
        decode(body, noon)
    assert caught.value.status == 413
