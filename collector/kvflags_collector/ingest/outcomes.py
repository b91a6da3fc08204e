# SPDX-License-Identifier: Apache-2.0
"""Outcome metrics from the wire to points that merge. Pure; for any thread. Instruments of others are not kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric
from sqlalchemy import Connection

from kvflags.telemetry.instruments import INSTRUMENTS
from kvflags_collector.ingest.identity import Identity, identity
from kvflags_collector.ingest.limits import timely
from kvflags_collector.ingest.signals import METRICS
from kvflags_collector.store.histogram import SCALE, Histogram
from kvflags_collector.store.outcomes import Point, merge

__all__ = ["Outcomes", "decode"]

_DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
_NO_VALUE = 1
# What a minute of an engine could add up to at most, in the instrument's unit; so a day's sum fits into 63 bits.
_LARGEST_SUM = 10**8
# Values of a histogram lie between a nanosecond and 34 years, so that no merge makes a histogram without end.
_OCTAVES = 30
_MOST_BUCKETS = 4096

_FIELDS = {"exponential histogram": "exponential_histogram", "sum": "sum", "gauge": "gauge"}
_KINDS: dict[str, str] = {instrument.name: _FIELDS[instrument.kind] for instrument in INSTRUMENTS}


@dataclass(slots=True)
class Outcomes:
    """One request, ready to be merged. rejected: reason -> data points."""

    size: int = 0
    received_us: int = 0
    points: list[Point] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.points)

    def store(self, conn: Connection) -> Counter[str]:
        """Merge them. What there was no room for, by reason."""
        return merge(conn, self.points, self.received_us)


class _Unfit(ValueError):
    """Why a data point is not kept."""


def decode(body: bytes, now_ns: int) -> Outcomes:
    """The outcomes of one ExportMetricsServiceRequest, received at `now_ns`.

    Raises:
        Refused: 400, where the body is no such message.
    """
    outcomes = Outcomes(size=len(body), received_us=now_ns // 1000)
    for entry in METRICS.parse(body).resource_metrics:
        who = identity(entry.resource.attributes)
        for metric in (metric for scope in entry.scope_metrics for metric in scope.metrics):
            _metric(metric, who, now_ns, outcomes)
    return outcomes


def _metric(metric: Metric, who: Identity, now_ns: int, outcomes: Outcomes) -> None:
    kind = metric.WhichOneof("data") or ""
    points = getattr(metric, kind).data_points if kind else ()
    unfit = _unfit(metric, kind)
    for point in points:
        if point.flags & _NO_VALUE:
            continue
        try:
            if unfit:
                raise _Unfit(unfit)
            outcomes.points.append(_point(metric.name, kind, point, who, now_ns))
        except _Unfit as problem:
            outcomes.rejected[str(problem)] += 1


def _unfit(metric: Metric, kind: str) -> str:
    """Why none of its data points can be kept, or ""."""
    expected = _KINDS.get(metric.name)
    if expected is None:
        return "of instruments that are not kvflags' outcomes"
    if kind != expected:
        return f"of {metric.name} that are no {expected.replace('_', ' ')}"
    if kind != "gauge" and getattr(metric, kind).aggregation_temporality != _DELTA:
        return "that are not of delta temporality"
    return ""


def _point(name: str, kind: str, point: Any, who: Identity, now_ns: int) -> Point:  # noqa: ANN401 - three classes
    # Like a transfer, an interval belongs to where it began; a gauge has no beginning.
    began = point.start_time_unix_nano or point.time_unix_nano
    if not timely(began, now_ns) or not timely(point.time_unix_nano, now_ns):
        raise _Unfit("from more than 7 days ago or more than an hour ahead")
    mine = who.with_arm_of(point.attributes)
    count, total, hist = _READ[kind](point)
    if not abs(total) <= _LARGEST_SUM:
        raise _Unfit(f"whose sum is beyond {_LARGEST_SUM}")
    key = (mine.deployment, mine.generation, mine.epoch, mine.engine, mine.arm, name)
    return Point(key, began // 1000, _token(point), count, round(total * 10**6), hist)


def _token(point: Any) -> int:  # noqa: ANN401 - three classes
    """What tells two exports of one key apart: their interval, and what other attributes they are split by."""
    text = b"".join(sorted(attribute.SerializeToString(deterministic=True) for attribute in point.attributes))
    whole = b"%d %d " % (point.start_time_unix_nano, point.time_unix_nano) + text
    return int.from_bytes(blake2b(whole, digest_size=8).digest(), "little")


def _number(point: Any) -> tuple[int, float, None]:  # noqa: ANN401 - a generated class
    kind = point.WhichOneof("value")
    return 1, float(getattr(point, kind)) if kind else 0.0, None


def _exponential(point: Any) -> tuple[int, float, Histogram]:  # noqa: ANN401 - a generated class
    buckets = point.positive.bucket_counts
    if len(buckets) > _MOST_BUCKETS or not -10 <= point.scale <= 20:
        raise _Unfit(f"with more than {_MOST_BUCKETS} buckets or a scale beyond -10 to 20")
    zeros = point.zero_count + sum(point.negative.bucket_counts)
    if zeros + sum(buckets) != point.count:
        raise _Unfit("whose buckets do not add up to their count")
    return point.count, point.sum, _histogram(point.scale, point.positive.offset, list(buckets), zeros)


def _histogram(scale: int, offset: int, buckets: list[int], zeros: int) -> Histogram:
    filled = [at for at, number in enumerate(buckets) if number]
    if not filled:
        return Histogram(0, np.zeros(0, np.uint64), zeros)
    first, last = filled[0], filled[-1]
    if not -_OCTAVES <= (offset + first) * 2.0**-scale <= (offset + last) * 2.0**-scale <= _OCTAVES:
        raise _Unfit("with values below a nanosecond or above 34 years")
    counts = np.array(buckets[first : last + 1], np.uint64)
    return Histogram(offset + first, counts, zeros, scale).downscaled(min(scale, SCALE))


_READ: dict[str, Callable[[Any], tuple[int, float, Histogram | None]]] = {
    "exponential_histogram": _exponential,
    "sum": _number,
    "gauge": _number,
}
