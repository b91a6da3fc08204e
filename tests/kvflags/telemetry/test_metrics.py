# SPDX-License-Identifier: Apache-2.0
"""Intervals on the wire, read by the collector's own decoder: it keeps every point, and each says what was seen."""

import time

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from kvflags.flags import Decision, Facts
from kvflags.telemetry.instruments import INSTRUMENTS, InstrumentName
from kvflags.telemetry.labels import Identity, front_end_labels
from kvflags.telemetry.metrics import Report, encode
from kvflags.telemetry.tally import Tally
from kvflags_collector.ingest.outcomes import decode

DECISION = Decision(feature="cross_layer_blocks", flag="clb", variant="on", arm="treatment", reason="arm", epoch=3)


def _labels(engine="e0", decision=DECISION):
    who = Identity(id=engine, deployment="c/ns/d", generation="r1", role="decode")
    return front_end_labels(who, decision, Facts(vllm="0.32.0", tp=2))


def _everything(interval):
    interval.observe(InstrumentName.TTFT, [0.5, 0.25, 0.0])
    interval.observe(InstrumentName.ITL, [0.01] * 4)
    interval.observe(InstrumentName.KV_USAGE, [0.5])
    for one in INSTRUMENTS:
        if one.kind == "sum":
            interval.count(one.name, 7, "stop" if one.split_by else "")


def _report(fold=_everything, **labels):
    tally = Tally()
    tally.add(fold)
    return Report(_labels(**labels), tally.take(), kv_blocks=1024)


def test_the_collector_keeps_every_instrument():
    outcomes = decode(encode([_report()]), time.time_ns())
    assert not outcomes.rejected
    assert {point.key[-1] for point in outcomes.points} == {one.name.value for one in INSTRUMENTS}
    assert {point.key[:-1] for point in outcomes.points} == {("c/ns/d", "r1", 3, "e0", "treatment")}
    by_name = {point.key[-1]: point for point in outcomes.points}
    ttft = by_name[InstrumentName.TTFT]
    assert (ttft.values, ttft.sum_micro, ttft.hist.zeros) == (3, 750_000, 1)
    # 0.25 and 0.5 are the upper bounds of OTLP's buckets -65 and -33 at scale 5.
    assert (ttft.hist.scale, ttft.hist.offset, ttft.hist.counts.tolist()) == (5, -65, [1, *[0] * 31, 1])
    assert by_name[InstrumentName.KV_BLOCKS].sum_micro == 1024 * 10**6
    assert by_name[InstrumentName.PREFIX_HITS].sum_micro == 7 * 10**6


def test_requests_are_split_by_the_reason_they_ended_for():
    def fold(interval):
        interval.count(InstrumentName.REQUESTS, 2, "length")
        interval.count(InstrumentName.REQUESTS, 1, "error")

    body = encode([_report(fold)])
    metrics = ExportMetricsServiceRequest.FromString(body).resource_metrics[0].scope_metrics[0].metrics
    points = next(one for one in metrics if one.name == InstrumentName.REQUESTS).sum.data_points
    reasons = [
        (attribute.value.string_value, point.as_int)
        for point in points
        for attribute in point.attributes
        if attribute.key == "kvflags.finish_reason"
    ]
    assert reasons == [("error", 1), ("length", 2)]
    kept = [point for point in decode(body, time.time_ns()).points if point.key[-1] == InstrumentName.REQUESTS]
    # Two points of one interval, which the collector must not take for one sent again.
    assert len({point.token for point in kept}) == 2


def test_the_engines_of_a_front_end_travel_in_one_body():
    outcomes = decode(encode([_report(engine="e0"), _report(engine="e1")]), time.time_ns())
    assert {point.key[3] for point in outcomes.points} == {"e0", "e1"}


def test_without_a_decision_there_is_no_arm_and_no_epoch():
    (point, *_) = decode(encode([_report(decision=None)]), time.time_ns()).points
    assert point.key[:-1] == ("c/ns/d", "r1", 0, "e0", "")


def test_nothing_seen_is_nothing_sent():
    assert encode([Report(_labels(), Tally().take(), kv_blocks=None)]) == b""


def test_the_operators_resource_attributes_are_there(monkeypatch):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=prod")
    entry = ExportMetricsServiceRequest.FromString(encode([_report()])).resource_metrics[0]
    values = {one.key: one.value.string_value for one in entry.resource.attributes}
    assert values["deployment.environment"] == "prod"
    assert values["service.name"] == "vllm"
    assert values["kvflags.vllm.version"] == "0.32.0"
