# SPDX-License-Identifier: Apache-2.0
"""The figures of a report, from what roll-ups measured. Nothing measured gives null, never a 0."""

from __future__ import annotations

from kvflags_collector.feedback.document import Figures, Times
from kvflags_collector.store.histogram import Histogram
from kvflags_collector.store.measures import Measures

__all__ = ["figures"]

_MS = 1_000_000


def figures(whole: Measures) -> Figures:
    """As the report has them; times in milliseconds, quantiles within 1.09 %."""
    any_, measured = whole.transfers > 0, whole.transfers - whole.failed - whole.incomplete
    return {
        "transfers": whole.transfers if any_ else None,
        "failed": whole.failed if any_ else None,
        "errors": whole.errors,
        "bytes": whole.bytes if measured else None,
        "descriptors_per_transfer": _ratio(whole.descriptors, measured),
        "blocks_per_transfer": _ratio(whole.blocks, measured),
        "post_ms": _times(whole.post_ns_sum, whole.post_hist),
        "transfer_ms": _times(whole.duration_ns_sum, whole.duration_hist),
    }


def _ratio(total: float, number: int) -> float | None:
    return round(total / number, 6) if number else None


def _times(total_ns: int, stored: bytes) -> Times:
    histogram = Histogram.from_bytes(stored)
    return {
        "mean": _ratio(total_ns / _MS, histogram.count),
        "p50": _ms(histogram.quantile(0.5)),
        "p99": _ms(histogram.quantile(0.99)),
    }


def _ms(ns: float | None) -> float | None:
    return None if ns is None else round(ns / _MS, 6)
