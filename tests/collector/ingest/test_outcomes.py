# SPDX-License-Identifier: Apache-2.0
"""Outcome metrics become hours and days: each export once, in any order, and what is not ours is counted."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from functools import partial
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as OverGrpc
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.sdk.metrics import Counter as SdkCounter
from opentelemetry.sdk.metrics import Histogram as SdkHistogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation
from opentelemetry.sdk.resources import Resource
from sqlalchemy import select

from kvflags.telemetry.instruments import INSTRUMENTS
from kvflags_collector.ingest.keeper import Keeper
from kvflags_collector.ingest.limits import Refused
from kvflags_collector.ingest.outcomes import decode
from kvflags_collector.store import outcomes
from kvflags_collector.store.histogram import Histogram
from kvflags_collector.store.outcome_tables import outcomes_day, outcomes_hour
from kvflags_collector.store.skew import note

TTFT = "kvflags.outcome.time_to_first_token"
TOKENS = "kvflags.outcome.output_tokens"
BLOCKS = "kvflags.outcome.kv_blocks"
RESOURCE = {"kvflags.deployment": "c/ns/a", "kvflags.generation": "r1", "kvflags.engine": "d0"}
MINUTE = 60 * 10**9
DELTA, CUMULATIVE = 1, 2


def _attributes(values: dict[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in values.items()]


class Export:
    """One request under construction. Times are minutes after noon."""

    def __init__(self, noon: int, **resource: str) -> None:
        self.noon, self.request = noon, ExportMetricsServiceRequest()
        entry = self.request.resource_metrics.add()
        entry.resource.attributes.extend(_attributes(RESOURCE | resource))
        entry.resource.attributes.append(KeyValue(key="kvflags.epoch", value=AnyValue(int_value=2)))
        self.metrics = entry.scope_metrics.add().metrics

    def _times(self, minute: float) -> dict[str, int]:
        at = self.noon + round(minute * MINUTE)
        return {"start_time_unix_nano": at, "time_unix_nano": at + MINUTE}

    def tokens(self, minute: float, value: float, temporality: int = DELTA, **point: Any) -> Export:
        metric = self.metrics.add(name=TOKENS)
        metric.sum.aggregation_temporality = temporality
        metric.sum.data_points.add(**self._times(minute) | {"as_double": value} | point)
        return self

    def ttft(self, minute: float, scale: int, offset: int, buckets: list[int], **point: Any) -> Export:
        metric = self.metrics.add(name=TTFT)
        metric.exponential_histogram.aggregation_temporality = DELTA
        given = self._times(minute) | {"scale": scale, "count": sum(buckets), "sum": 1.5 * sum(buckets)} | point
        added = metric.exponential_histogram.data_points.add(**given)
        added.positive.offset = offset
        added.positive.bucket_counts.extend(buckets)
        return self

    def blocks(self, minute: float, value: int) -> Export:
        at = self.noon + round(minute * MINUTE)
        self.metrics.add(name=BLOCKS).gauge.data_points.add(time_unix_nano=at, as_int=value)
        return self


def _store(db, noon, *exports: Export) -> Counter[str]:
    rejected: Counter[str] = Counter()
    for export in exports:
        decoded = decode(export.request.SerializeToString(), noon)
        rejected += decoded.rejected
        with db.write() as conn:
            rejected += decoded.store(conn)
    return rejected


def _rows(db, table=outcomes_hour) -> list[dict[str, Any]]:
    with db.read() as conn:
        return [dict(row) for row in conn.execute(select(table).order_by(*table.primary_key)).mappings()]


def test_an_export_lands_in_its_hour_and_day(db, noon):
    export = Export(noon, **{"kvflags.arm": "control"}).tokens(1, 100.5).ttft(1, 5, -40, [3, 0, 1]).blocks(1, 5000)
    assert _store(db, noon + 5 * MINUTE, export) == Counter()
    hours, days = _rows(db), _rows(db, outcomes_day)
    key = {"deployment": "c/ns/a", "generation": "r1", "epoch": 2, "engine_id": "d0", "arm": "control"}
    assert [{name: row[name] for name in key} for row in hours] == [key] * 3
    assert [(r["instrument"], r["hour_us"], r["points"], r["count"], r["sum_micro"]) for r in hours] == [
        (BLOCKS, noon // 1000, 1, 1, 5_000_000_000),
        (TOKENS, noon // 1000, 1, 1, 100_500_000),
        (TTFT, noon // 1000, 1, 4, 6_000_000),
    ]
    assert [row["hist"] for row in hours[:2]] == [None, None]
    hist = Histogram.from_bytes(hours[2]["hist"])
    assert (hist.scale, hist.offset, hist.counts.tolist()) == (5, -40, [3, 0, 1])
    assert {row["day_us"] for row in days} == {noon // 1000 - 12 * 3600 * 10**6}
    same = ("deployment", "instrument", "points", "count", "sum_micro", "hist")
    assert [[row[name] for name in same] for row in hours] == [[row[name] for name in same] for row in days]


def test_any_order_repeats_and_batches_give_the_same_rows(db, noon):
    exports = [
        Export(noon, **{"kvflags.engine": f"d{engine}"})
        .tokens(minute * 13, 0.1 * minute)
        .ttft(minute * 13, 3 + minute % 4, -30, [1, minute, 2])
        for minute in range(12)
        for engine in range(2)
    ]
    _store(db, noon + 180 * MINUTE, *exports)
    expected = _rows(db), _rows(db, outcomes_day)
    assert [row["points"] for row in expected[1]] == [12] * 4
    with db.write() as conn:
        conn.execute(outcomes_hour.delete())
        conn.execute(outcomes_day.delete())
    shuffled = random.Random(7).sample(exports * 3, len(exports) * 3)
    both = [Export(noon) for _ in shuffled[::2]]
    for batch, first, second in zip(both, shuffled[::2], shuffled[1::2], strict=True):
        batch.request.CopyFrom(first.request)
        batch.request.MergeFrom(second.request)
    _store(db, noon + 180 * MINUTE, *both)
    assert (_rows(db), _rows(db, outcomes_day)) == expected


def test_two_collectors_that_get_the_same_exports_at_once_count_them_once(db, noon):
    exports = [Export(noon).tokens(minute % 50, 1).ttft(minute % 50, 5, -30, [1, 1]) for minute in range(100)]
    keepers = [Keeper(db), Keeper(db)]
    for keeper in keepers:
        keeper.start()

    async def send() -> None:
        sent = [
            keeper.submit(partial(decode, export.request.SerializeToString(), noon + 50 * MINUTE))
            for export in exports
            for keeper in keepers
        ]
        await asyncio.gather(*sent)

    asyncio.run(send())
    for keeper in keepers:
        keeper.close()
    for table in (outcomes_hour, outcomes_day):
        found = [(row["points"], row["count"], row["sum_micro"]) for row in _rows(db, table)]
        assert found == [(50, 50, 50_000_000), (50, 100, 150_000_000)]


def test_an_interval_belongs_to_the_hour_in_which_it_began(db, noon):
    _store(db, noon + 90 * MINUTE, Export(noon).tokens(59.5, 1).tokens(60, 2))
    assert [row["sum_micro"] for row in _rows(db)] == [1_000_000, 2_000_000]


def test_a_clock_that_is_an_hour_ahead_is_corrected_and_a_retry_still_known(db, noon):
    export = Export(noon).tokens(50, 1)
    with db.write() as conn:
        note(conn, "d0", "c/ns/a", 3_600_000_000, noon // 1000 - 1)
    _store(db, noon, export)
    with db.write() as conn:
        # Meanwhile its clock was set right; what it had sent is not sent again.
        note(conn, "d0", "c/ns/a", 0, noon // 1000 + 1)
    _store(db, noon + 1_000_000, export, Export(noon).tokens(51, 2))
    found = [(row["hour_us"] - noon // 1000, row["points"], row["sum_micro"]) for row in _rows(db)]
    assert found == [(-3_600_000_000, 1, 1_000_000), (0, 1, 2_000_000)]
    assert [row["sum_micro"] for row in _rows(db, outcomes_day)] == [3_000_000]


def test_the_arm_of_a_data_point_and_other_splits_of_one_instrument(db, noon):
    split = [_attributes({"model": name, "kvflags.arm": "treatment"}) for name in "ab"]
    export = Export(noon).tokens(0, 1, attributes=split[0]).tokens(0, 2, attributes=split[1])
    _store(db, noon, export, export)
    [row] = _rows(db)
    assert (row["arm"], row["points"], row["sum_micro"]) == ("treatment", 2, 3_000_000)


def test_a_coarser_histogram_makes_the_hour_coarser(db, noon):
    _store(db, noon, Export(noon).ttft(0, 5, -64, [1] * 64), Export(noon).ttft(1, 8, 0, [1] * 512).ttft(2, 2, -4, [7]))
    hist = Histogram.from_bytes(_rows(db)[0]["hist"])
    assert (hist.scale, hist.offset, hist.counts.tolist()) == (2, -8, [8] * 4 + [15] + [8] * 3 + [64] * 8)


@pytest.mark.parametrize(
    ("export", "reason"),
    [
        (lambda e: e.tokens(0, 1, CUMULATIVE), "that are not of delta temporality"),
        (lambda e: e.tokens(61 - 8 * 1440, 1), "from more than 7 days ago or more than an hour ahead"),
        (lambda e: e.tokens(61, 1), "from more than 7 days ago or more than an hour ahead"),
        (lambda e: e.tokens(0, float("nan")), "whose sum is beyond 100000000"),
        (lambda e: e.tokens(0, 1e300), "whose sum is beyond 100000000"),
        (lambda e: e.ttft(0, 5, 0, [1], count=2), "whose buckets do not add up to their count"),
        (lambda e: e.ttft(0, 5, 961, [1]), "with values below a nanosecond or above 34 years"),
        (lambda e: e.ttft(0, 5, -(2**31), [1]), "with values below a nanosecond or above 34 years"),
        (lambda e: e.ttft(0, 21, 0, [1]), "with more than 4096 buckets or a scale beyond -10 to 20"),
        (lambda e: e.ttft(0, 5, 0, [1] * 4097), "with more than 4096 buckets or a scale beyond -10 to 20"),
    ],
)
def test_what_cannot_be_merged_is_counted_by_reason(db, noon, export, reason):
    assert _store(db, noon, export(Export(noon)).blocks(0, 1)) == {reason: 1}
    assert [row["instrument"] for row in _rows(db)] == [BLOCKS]


def test_another_type_and_foreign_instruments_are_counted(db, noon):
    export = Export(noon)
    export.metrics.add(name=TOKENS).gauge.data_points.add(as_int=1, time_unix_nano=noon)
    export.metrics.add(name="http.server.duration").histogram.data_points.add(count=1)
    export.metrics.add(name="summary").summary.data_points.add(count=1)
    export.metrics.add(name="empty")
    # Flag 1: no recorded value. There is nothing to keep, and nothing is lost.
    export.metrics.add(name=BLOCKS).gauge.data_points.add(flags=1)
    assert _store(db, noon, export) == {
        "of kvflags.outcome.output_tokens that are no sum": 1,
        "of instruments that are not kvflags' outcomes": 2,
    }


def test_a_body_that_is_no_request_is_400(noon):
    with pytest.raises(Refused, match="the body is not an ExportMetricsServiceRequest"):
        decode(b"\xff\xff", noon)


def test_exports_too_often_and_labels_without_end_are_stopped(db, noon, monkeypatch):
    monkeypatch.setattr(outcomes, "_MOST_POINTS", 2)
    monkeypatch.setattr(outcomes, "_MOST_ROWS", 1)
    exports = [Export(noon).tokens(minute, 1) for minute in range(3)]
    other = Export(noon, **{"kvflags.engine": "d1"}).tokens(0, 1)
    assert _store(db, noon, *exports, other) == {
        "beyond 2 exports of one instrument in one hour": 1,
        "beyond 1 instruments of engines in one hour": 1,
    }
    [row] = _rows(db)
    assert (row["engine_id"], row["points"]) == ("d0", 2)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_official_metric_exporters_deliver_every_instrument(serve, db, protocol):
    client = serve(clock=time.time_ns)
    temporality = {SdkCounter: AggregationTemporality.DELTA, SdkHistogram: AggregationTemporality.DELTA}
    aggregation = {SdkHistogram: ExponentialBucketHistogramAggregation(max_size=320, max_scale=5)}
    given: Any = {"preferred_temporality": temporality, "preferred_aggregation": aggregation}
    exporter = _exporter(protocol, client, given)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    provider = MeterProvider([reader], Resource(RESOURCE), shutdown_on_exit=False)
    meter = provider.get_meter("kvflags")
    for instrument in INSTRUMENTS:
        if instrument.kind == "sum":
            meter.create_counter(instrument.name, instrument.unit).add(3)
        elif instrument.kind == "gauge":
            meter.create_gauge(instrument.name, instrument.unit).set(3)
        else:
            histogram = meter.create_histogram(instrument.name, instrument.unit)
            for value in (0.01, 0.02, 2.97):
                histogram.record(value)
    provider.shutdown()
    rows = _rows(db)
    assert {row["instrument"]: row["sum_micro"] for row in rows} == {one.name: 3_000_000 for one in INSTRUMENTS}
    hists = [Histogram.from_bytes(row["hist"]) for row in rows if row["hist"]]
    assert [(hist.scale, hist.count) for hist in hists] == [(5, 3)] * 3


def _exporter(protocol: str, client: Any, given: dict[str, Any]) -> Any:
    if protocol == "http":
        return OTLPMetricExporter(endpoint=f"{client.base_url}/v1/metrics", **given)
    return OverGrpc(endpoint=f"http://127.0.0.1:{client.grpc_port}", **given)


def test_metrics_over_http_in_both_encodings(serve, db, noon):
    client: httpx.Client = serve()
    body = Export(noon).tokens(0, 1).request
    answer = client.post(
        "/v1/metrics", content=body.SerializeToString(), headers={"Content-Type": "application/x-protobuf"}
    )
    assert (answer.status_code, answer.content) == (200, b"")
    point = {"startTimeUnixNano": str(noon + MINUTE), "timeUnixNano": noon + 2 * MINUTE, "asInt": "5"}
    metric = {"name": TOKENS, "sum": {"aggregationTemporality": 1, "dataPoints": [point]}}
    foreign = {"name": "x", "gauge": {"dataPoints": [{"asInt": 1}]}}
    document = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric, foreign]}]}]}
    answer = client.post("/v1/metrics", json=document)
    assert answer.json() == {
        "partialSuccess": {
            "rejectedDataPoints": "1",
            "errorMessage": "data points not stored: 1 of instruments that are not kvflags' outcomes",
        }
    }
    assert sorted(row["sum_micro"] for row in _rows(db)) == [1_000_000, 5_000_000]
