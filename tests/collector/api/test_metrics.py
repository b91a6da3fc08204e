# SPDX-License-Identifier: Apache-2.0
"""`/metrics`: both formats parse, and each figure moves with what it counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

_OPENMETRICS = "application/openmetrics-text; version=1.0.0"
_PROTOBUF = {"Content-Type": "application/x-protobuf"}


@pytest.fixture
def value(api) -> Callable[..., float | None]:
    """value(sample, **labels): as it is scraped now; None where there is no such series."""

    def look(name: str, **labels: str) -> float | None:
        text = api.http.get("/metrics", headers={"Accept": _OPENMETRICS}).text
        samples = [sample for family in openmetrics(text) for sample in family.samples]
        found = [one.value for one in samples if one.name == name and one.labels == labels]
        return found[0] if found else None

    return look


def _export(api, *starts: int) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number, start in enumerate(starts, 1):
        ids = {"trace_id": number.to_bytes(16, "big"), "span_id": number.to_bytes(8, "big")}
        scope.spans.add(name="kv.transfer", start_time_unix_nano=start, end_time_unix_nano=start + 1, **ids)
    return request.SerializeToString()


def test_both_formats_parse(api):
    text = api.http.get("/metrics", headers={"Accept": _OPENMETRICS})
    assert text.headers["Content-Type"].startswith("application/openmetrics-text")
    assert {family.name for family in openmetrics(text.text)} >= {"kvflags_collector", "kvflags_rollup_lag_seconds"}
    plain = api.http.get("/metrics")
    assert plain.headers["Content-Type"].startswith("text/plain")
    assert [family for family in prometheus(plain.text) if family.name == "kvflags_engines"]


def test_what_was_taken_rejected_refused_and_sent_again(api, value):
    now = api.now * 1000
    body = _export(api, now, now, 1)
    for _ in range(2):
        assert api.http.post("/v1/traces", content=body, headers=_PROTOBUF).status_code == 200
    assert api.http.post("/v1/traces", content=b"\xff", headers=_PROTOBUF).status_code == 400
    assert value("kvflags_ingest_requests_total", signal="traces") == 2
    assert value("kvflags_ingest_duplicate_requests_total") == 1
    reason = "that started more than 7 days ago or more than an hour ahead"
    assert value("kvflags_ingest_rejected_items_total", signal="traces", reason=reason) == 2
    assert value("kvflags_ingest_refused_requests_total", signal="traces", status="400") == 1
    assert value("kvflags_ingest_commit_seconds_count", signal="traces") == 2
    assert value("kvflags_ingest_queue_bytes") == 0


def test_the_fleet(api, value):
    assert value("kvflags_engines") == 0
    api.register()
    api.beat(dropped={"spans": 7, "events": 2})
    assert value("kvflags_engines") == 1
    assert value("kvflags_engine_dropped_items_total", kind="spans") == 7
    assert value("kvflags_engine_dropped_items_total", kind="events") == 2
    route = "/api/v1/engines/{registration_id}/heartbeat"
    assert value("kvflags_http_requests_total", method="POST", route=route, status="200") == 1
    assert value("kvflags_http_requests_total", method="POST", route="/api/v1/engines/register", status="200") == 1


def test_made_up_paths_and_methods_are_one_series(api, value):
    for number in range(3):
        api.http.get(f"/nowhere/{number}")
        api.http.request(f"ODD{number}", "/nowhere")
    assert value("kvflags_http_requests_total", method="GET", route="elsewhere", status="404") == 3
    assert value("kvflags_http_requests_total", method="other", route="elsewhere", status="404") == 3
