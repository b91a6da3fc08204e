# SPDX-License-Identifier: Apache-2.0
"""OTLP/JSON becomes the same bytes as protobuf, by the specification's rules and not by protobuf's own."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from kvflags_collector.ingest.from_json import from_json
from kvflags_collector.ingest.limits import Refused


def _traces(span) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def _span(span):
    [entry] = ExportTraceServiceRequest.FromString(from_json(_traces(span), ExportTraceServiceRequest)).resource_spans
    return entry.scope_spans[0].spans[0]


def _value(value):
    return _span({"attributes": [{"key": "k", "value": value}]}).attributes[0].value


@pytest.mark.parametrize("spell", [str.upper, str.lower])
def test_ids_are_hexadecimal_in_either_case(spell):
    span = _span({"traceId": spell("5b8efff798038103d269b633813fc60c"), "spanId": spell("eee19b7ec3c1b174")})
    assert (span.trace_id.hex(), span.span_id.hex()) == ("5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174")


def test_enums_are_numbers():
    span = _span({"kind": 3, "status": {"code": 2}})
    assert (span.kind, span.status.code) == (3, 2)


def test_names_of_enums_are_no_numbers():
    with pytest.raises(Refused, match="SPAN_KIND_CLIENT") as refused:
        _span({"kind": "SPAN_KIND_CLIENT"})
    assert refused.value.status == 400


@pytest.mark.parametrize("number", [1544712660300000000, "1544712660300000000"])
def test_long_integers_are_numbers_or_strings(number):
    assert _span({"startTimeUnixNano": number}).start_time_unix_nano == 1544712660300000000
    assert _value({"intValue": number}).int_value == 1544712660300000000


def test_unknown_fields_are_passed_over_and_null_is_absent():
    span = _span({"name": "a", "later": {"deep": [[{}]]}, "kind": None, "attributes": None})
    assert (span.name, span.kind, len(span.attributes)) == ("a", 0, 0)


def test_only_lower_camel_case_is_known():
    assert _span({"trace_state": "a", "traceState": "b", "start_time_unix_nano": 7}).trace_state == "b"
    assert _span({"start_time_unix_nano": 7}).start_time_unix_nano == 0


@pytest.mark.parametrize("text", ["//79", "__79"])
def test_bytes_are_base64(text):
    assert _value({"bytesValue": text}).bytes_value == b"\xff\xfe\xfd"


def test_doubles_have_names_where_json_has_none():
    assert str(_value({"doubleValue": "NaN"}).double_value) == "nan"
    assert _value({"doubleValue": "-Infinity"}).double_value == float("-inf")
    assert _value({"doubleValue": 1}).double_value == 1.0


def test_every_kind_of_value_arrives():
    value = {
        "kvlistValue": {
            "values": [
                {"key": "a", "value": {"arrayValue": {"values": [{"boolValue": True}, {"stringValue": "ü"}, {}]}}},
            ]
        }
    }
    assert MessageToDict(_value(value)) == value


def test_the_specifications_own_examples():
    metrics = {
        "resourceMetrics": [
            {
                "scopeMetrics": [
                    {
                        "metrics": [
                            {
                                "name": "my.exponential.histogram",
                                "exponentialHistogram": {
                                    "aggregationTemporality": 1,
                                    "dataPoints": [
                                        {
                                            "startTimeUnixNano": "1544712660300000000",
                                            "timeUnixNano": "1544712660300000000",
                                            "count": "3",
                                            "sum": 10,
                                            "scale": 0,
                                            "zeroCount": "1",
                                            "positive": {"offset": 1, "bucketCounts": ["0", "2"]},
                                        }
                                    ],
                                },
                            }
                        ]
                    }
                ]
            }
        ]
    }
    [entry] = ExportMetricsServiceRequest.FromString(
        from_json(json.dumps(metrics).encode(), ExportMetricsServiceRequest)
    ).resource_metrics
    [point] = entry.scope_metrics[0].metrics[0].exponential_histogram.data_points
    assert (point.count, point.sum, list(point.positive.bucket_counts)) == (3, 10.0, [0, 2])
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"eventName": "e", "body": {"stringValue": "b"}}]}]}]}
    [entry] = ExportLogsServiceRequest.FromString(
        from_json(json.dumps(logs).encode(), ExportLogsServiceRequest)
    ).resource_logs
    assert (entry.scope_logs[0].log_records[0].event_name, entry.scope_logs[0].log_records[0].body.string_value) == (
        "e",
        "b",
    )


def _nested(levels):
    value = {}
    for _ in range(levels):
        value = {"arrayValue": {"values": [value]}}
    return value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nothing",
        b"[]",
        b"7",
        b'{"resourceSpans":{}}',
        b'{"resourceSpans":[7]}',
        b'{"resourceSpans":["a"]}',
        _traces({"traceId": "xyz"}),
        _traces({"traceId": "abc"}),
        _traces({"traceId": 7}),
        _traces({"name": 7}),
        _traces({"kind": 1.5}),
        _traces({"kind": True}),
        _traces({"kind": 1 << 40}),
        _traces({"startTimeUnixNano": -1}),
        _traces({"startTimeUnixNano": {}}),
        _traces({"attributes": [{"key": "k", "value": {"bytesValue": "%%"}}]}),
        _traces({"attributes": [{"key": "k", "value": {"bytesValue": 7}}]}),
        _traces({"attributes": [{"key": "k", "value": {"doubleValue": True}}]}),
        _traces({"name": "\ud800"}),
        b'{"resourceSpans":[{"schemaUrl":"\xff"}]}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        _traces({"attributes": [{"key": "k", "value": _nested(200)}]}),
        b'{"resourceSpans":[{"droppedAttributesCount":' + b"9" * 5000 + b"}]}",
    ],
)
def test_what_is_no_request_is_400(body):
    with pytest.raises(Refused, match="the body is not an ExportTraceServiceRequest in JSON") as refused:
        from_json(body, ExportTraceServiceRequest)
    assert refused.value.status == 400


def test_too_many_values_are_413_before_they_are_parsed():
    with pytest.raises(Refused, match="more than 2000000 values") as refused:
        from_json(b'{"x":[' + b"{}," * 1_000_001 + b"{}]}", ExportTraceServiceRequest)
    assert refused.value.status == 413


_KEYS = st.sampled_from(["resourceSpans", "scopeSpans", "spans", "attributes", "key", "value", "kind", "traceId"])
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@settings(deadline=None)
@given(st.recursive(_LEAVES, lambda inner: st.lists(inner) | st.dictionaries(_KEYS | st.text(), inner)))
def test_any_json_is_taken_or_400(document):
    with suppress(Refused):
        encoded = from_json(json.dumps(document).encode(), ExportTraceServiceRequest)
        assert ExportTraceServiceRequest.FromString(encoded).SerializeToString() == encoded
