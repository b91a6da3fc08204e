# SPDX-License-Identifier: Apache-2.0
"""What the collector counts of its own work. Once a request, never once a span; labels come from bounded sets."""

from __future__ import annotations

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Histogram

from kvflags_collector.ingest.durations import Durations

__all__ = ["Instruments"]

# An acknowledgement takes 5 to 50 ms; a client gives up after 10 s.
_SECONDS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
# Decoders have about ten reasons. Should one ever quote what was sent, the series stay as few.
_MOST_REASONS = 32


class Instruments:
    """One set for each application, in a registry of its own. Any thread may use them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._accepted = self._counter("ingest_requests", "OTLP requests stored and acknowledged", "signal")
        self._spans = self._counter("ingest_spans", "Spans stored and acknowledged")
        self._rejected = self._counter(
            "ingest_rejected_items", "Spans, points and records not kept", "signal", "reason"
        )
        self._refused = self._counter(
            "ingest_refused_requests", "OTLP requests refused, by HTTP status", "signal", "status"
        )
        self._commit = Histogram(
            "kvflags_ingest_commit_seconds",
            "From decoded to committed",
            ["signal"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._http = self._counter("http_requests", "Requests by route and status", "method", "route", "status")
        self.durations = Durations()
        self.registry.register(self.durations)
        self._reasons: set[str] = set()

    def acknowledged(self, signal: str, spans: int, rejected: Tally[str], seconds: float) -> None:
        """A request was stored, `seconds` after it was decoded."""
        self._accepted.labels(signal).inc()
        self._commit.labels(signal).observe(seconds)
        self._spans.inc(spans)
        for reason, number in rejected.items():
            self._rejected.labels(signal, self._bounded(reason)).inc(number)

    def refused(self, signal: str, status: int) -> None:
        self._refused.labels(signal, str(status)).inc()

    def answered(self, method: str, route: str, status: int) -> None:
        """`route`: its template, never the path that was asked for."""
        self._http.labels(method, route, str(status)).inc()

    def _bounded(self, reason: str) -> str:
        if len(self._reasons) < _MOST_REASONS:
            self._reasons.add(reason)
        return reason if reason in self._reasons else "other"

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(f"kvflags_{name}", says, labels, registry=self.registry)
