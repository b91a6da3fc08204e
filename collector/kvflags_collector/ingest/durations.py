# SPDX-License-Identifier: Apache-2.0
"""How long transfers take, by arm, as a histogram that Prometheus scrapes, with a trace to look at in each bucket."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from kvflags_collector.ingest.spans.took import ARMS, BOUNDS, KINDS, Took

__all__ = ["Durations"]

_NAMES = (*map(floatToGoString, BOUNDS), "+Inf")


class Durations(Collector):
    """As received: what is sent again counts again, and what was sampled away does not. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = np.zeros((len(ARMS), len(_NAMES)), np.int64)
        self._seconds = np.zeros(len(ARMS))
        self._traces: dict[tuple[int, int], Exemplar] = {}
        # Every series from the start: a rate over one that appears with its first failure would miss that one.
        self._failed = Counter({(arm, kind): 0 for arm in ARMS for kind in KINDS})

    def describe(self) -> Iterable[Metric]:
        return ()

    def add(self, took: Took, now_s: float) -> None:
        """Count what a request brought, which was stored at `now_s` (seconds since 1970)."""
        with self._lock:
            self._counts += took.counts
            self._seconds += took.seconds
            self._failed.update(took.failed)
            for series, (trace, seconds) in took.traces.items():
                self._traces[series] = Exemplar({"trace_id": trace}, seconds, now_s)

    def collect(self) -> Iterable[Metric]:
        took = HistogramMetricFamily("kvflags_transfer_seconds", "Transfers that succeeded, by rank", labels=["arm"])
        says = "Transfers that failed, by rank"
        failed = CounterMetricFamily("kvflags_failed_transfers", says, labels=["arm", "kind"])
        with self._lock:
            for code, arm in enumerate(ARMS):
                took.add_metric([arm], self._buckets(code), self._seconds[code])
            for labels, number in self._failed.items():
                failed.add_metric(labels, number)
        yield took
        yield failed

    def _buckets(self, arm: int) -> list[Any]:
        """Cumulative. A bucket without a trace is a pair, which the library's own type does not say."""
        counts = np.cumsum(self._counts[arm]).tolist()
        traces = (self._traces.get((arm, at)) for at in range(len(_NAMES)))
        return [
            (name, count, trace) if trace else (name, count)
            for name, count, trace in zip(_NAMES, counts, traces, strict=True)
        ]
