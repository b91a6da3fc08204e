# SPDX-License-Identifier: Apache-2.0
"""Intervals become OTLP metrics, in the SDK's data model. No meter provider: the global one is neither used nor set.

Imported by the export thread only, since the SDK takes a fifth of a second to import.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Buckets as PointBuckets
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from kvflags import __version__
from kvflags.telemetry.attributes import SCOPE_NAME
from kvflags.telemetry.instruments import INSTRUMENTS, Instrument, InstrumentName
from kvflags.telemetry.resource import resource
from kvflags.telemetry.tally import SCALE

if TYPE_CHECKING:
    from opentelemetry.util.types import Attributes

    from kvflags.telemetry.labels import Labels
    from kvflags.telemetry.tally import Buckets, Interval

__all__ = ["Report", "encode"]

_DELTA = AggregationTemporality.DELTA
_SCOPE = InstrumentationScope(SCOPE_NAME, __version__)
_NOTHING = PointBuckets(0, [])


@dataclass(frozen=True, slots=True)
class Report:
    """One engine's interval. `kv_blocks`: None while it is not known."""

    labels: Labels
    interval: Interval
    kv_blocks: int | None


def encode(reports: Iterable[Report]) -> bytes:
    """The body of one OTLP request; empty where there is nothing to say."""
    entries = [entry for report in reports if (entry := _entry(report)).scope_metrics[0].metrics]
    body: bytes = encode_metrics(MetricsData(entries)).SerializeToString() if entries else b""
    return body


def _entry(report: Report) -> ResourceMetrics:
    made = resource(report.labels)
    metrics = [metric for instrument in INSTRUMENTS for metric in _MAKE[instrument.kind](instrument, report)]
    return ResourceMetrics(made, [ScopeMetrics(_SCOPE, metrics, "")], made.schema_url)


def _histogram(instrument: Instrument, report: Report) -> Iterator[Metric]:
    buckets = report.interval.histograms.get(instrument.name)
    if buckets is not None:
        yield _metric(instrument, ExponentialHistogram([_point(buckets, report)], _DELTA))


def _point(buckets: Buckets, report: Report) -> ExponentialHistogramDataPoint:
    first, last = (min(buckets.counts), max(buckets.counts)) if buckets.counts else (0, -1)
    return ExponentialHistogramDataPoint(
        attributes=report.labels.span,
        start_time_unix_nano=report.interval.start_ns,
        time_unix_nano=report.interval.end_ns,
        count=buckets.zeros + buckets.counts.total(),
        sum=buckets.total,
        scale=SCALE,
        zero_count=buckets.zeros,
        positive=PointBuckets(first - 1, [buckets.counts[index] for index in range(first, last + 1)]),
        negative=_NOTHING,
        flags=0,
        min=buckets.least,
        max=buckets.most,
    )


def _sum(instrument: Instrument, report: Report) -> Iterator[Metric]:
    interval = report.interval
    points = [
        NumberDataPoint(_attributes(instrument, report.labels, split_by), interval.start_ns, interval.end_ns, number)
        for (name, split_by), number in sorted(interval.sums.items())
        if name == instrument.name
    ]
    if points:
        yield _metric(instrument, Sum(points, _DELTA, is_monotonic=True))


def _attributes(instrument: Instrument, labels: Labels, split_by: str) -> Attributes:
    return {**labels.span, instrument.split_by: split_by} if instrument.split_by else labels.span


def _gauge(instrument: Instrument, report: Report) -> Iterator[Metric]:
    if instrument.name == InstrumentName.KV_BLOCKS and report.kv_blocks is not None:
        interval = report.interval
        point = NumberDataPoint(report.labels.span, interval.start_ns, interval.end_ns, report.kv_blocks)
        yield _metric(instrument, Gauge([point]))


def _metric(instrument: Instrument, data: ExponentialHistogram | Sum | Gauge) -> Metric:
    return Metric(instrument.name.value, instrument.meaning, instrument.unit, data)


_MAKE = {"exponential histogram": _histogram, "sum": _sum, "gauge": _gauge}
