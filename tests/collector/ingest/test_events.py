# SPDX-License-Identifier: Apache-2.0
"""Log records: kvflags' events are stored once, others are counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from sqlalchemy import select

from kvflags_collector.ingest.events import decode
from kvflags_collector.ingest.limits import Refused
from kvflags_collector.store.events import told
from kvflags_collector.store.outcome_tables import events

DAY = 86_400 * 10**9


def _attributes(values: dict[str, Any]) -> list[KeyValue]:
    kinds = {str: "string_value", bool: "bool_value", int: "int_value"}
    return [KeyValue(key=key, value=AnyValue(**{kinds[type(value)]: value})) for key, value in values.items()]


@pytest.fixture
def logs(noon):
    """logs((name, attributes), ..., engine=...): a request; `field` of a record by a third value."""

    def build(*records: Any, engine: str = "e0") -> ExportLogsServiceRequest:
        request = ExportLogsServiceRequest()
        entry = request.resource_logs.add()
        entry.resource.attributes.extend(_attributes({"kvflags.deployment": "c/ns/a", "kvflags.engine": engine}))
        scope = entry.scope_logs.add()
        for name, attributes, *fields in records:
            given = {"event_name": name, "time_unix_nano": noon} | (fields[0] if fields else {})
            scope.log_records.add(**given).attributes.extend(_attributes(attributes))
        return request

    return build


@pytest.fixture
def store(db, noon):
    def run(*requests: ExportLogsServiceRequest) -> Counter[str]:
        rejected: Counter[str] = Counter()
        for request in requests:
            decoded = decode(request.SerializeToString(), noon)
            rejected += decoded.rejected
            with db.write() as conn:
                rejected += decoded.store(conn)
        return rejected

    return run


def _rows(db) -> list[dict[str, Any]]:
    with db.read() as conn:
        return [dict(row) for row in conn.execute(select(events).order_by(events.c.name)).mappings()]


def test_an_event_is_stored_with_whose_it_is(db, store, logs, noon):
    assert store(logs(("kvflags.engine.fact", {"kvflags.rank": 3, "kvflags.effective": True}))) == Counter()
    [row] = _rows(db)
    assert len(row.pop("fingerprint")) == 16
    assert row == {
        "time_us": noon // 1000,
        "name": "kvflags.engine.fact",
        "deployment": "c/ns/a",
        "generation": "",
        "epoch": 0,
        "engine_id": "e0",
        "rank": 3,
        "attributes": {"kvflags.rank": 3, "kvflags.effective": True},
        "received_us": noon // 1000,
    }


def test_the_same_record_again_is_the_same_event(db, store, logs):
    request, other = logs(("kvflags.drops", {"kvflags.dropped.spans": 1})), logs(("kvflags.drops", {}))
    other.MergeFrom(request)
    store(request, request, other)
    assert len(_rows(db)) == 2


def test_earlier_names_of_the_evaluation_are_understood(db, store, logs):
    given = {"event.name": "feature_flag.evaluation", "feature_flag.variant": "on", "feature_flag.key": "k"}
    store(logs(("", given, {"time_unix_nano": 0, "observed_time_unix_nano": 1_798_891_200 * 10**9})))
    [row] = _rows(db)
    assert row["name"] == "feature_flag.evaluation"
    assert row["attributes"] == {"feature_flag.result.variant": "on", "feature_flag.key": "k"}


def test_foreign_late_and_large_records_are_counted(db, store, logs, noon):
    request = logs(
        ("", {}),
        ("http.request", {}),
        ("kvflags.drops", {}, {"time_unix_nano": noon - 8 * DAY}),
        ("kvflags.drops", {"x": "x" * 20_000}),
    )
    assert store(request) == {
        "that are not kvflags' events": 2,
        "from more than 7 days ago or more than an hour ahead": 1,
        "larger than 16384 bytes": 1,
    }
    assert _rows(db) == []


def test_a_body_that_is_no_request_is_400(noon):
    with pytest.raises(Refused, match="the body is not an ExportLogsServiceRequest"):
        decode(b"\xff\xff", noon)


def test_what_the_ranks_of_a_generation_told(db, store, logs, noon):
    def fact(rank: int, effective: bool, after: int = 0) -> Any:
        attributes = {"kvflags.rank": rank, "kvflags.effective": effective}
        return "kvflags.engine.fact", attributes, {"time_unix_nano": noon + after}

    store(
        logs(fact(1, True), fact(2, True), engine="whole"),
        logs(fact(1, True), engine="partly"),
        logs(fact(2, False), engine="not"),
        logs(fact(1, False), fact(1, True, 9000), fact(2, True), engine="again"),
    )
    with db.read() as conn:
        place = told(conn, {"c/ns/a", "c/ns/b"})["c/ns/a", "", 0]
    every = {engine: place.every_rank(engine, 3) for engine in ("whole", "partly", "not", "again", "silent")}
    assert every == {"whole": True, "partly": None, "not": False, "again": True, "silent": None}


def test_logs_over_http_in_both_encodings(serve, db, logs, noon):
    client = serve()
    body = logs(("kvflags.drops", {}), ("other", {})).SerializeToString()
    answer = client.post("/v1/logs", content=body, headers={"Content-Type": "application/x-protobuf"})
    assert ExportLogsServiceResponse.FromString(answer.content).partial_success.rejected_log_records == 1
    record = {"eventName": "kvflags.transfer.expired", "timeUnixNano": noon}
    document = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
    assert client.post("/v1/logs", json=document).json() == {}
    assert [row["name"] for row in _rows(db)] == ["kvflags.drops", "kvflags.transfer.expired"]
