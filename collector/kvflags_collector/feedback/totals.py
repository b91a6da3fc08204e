# SPDX-License-Identifier: Apache-2.0
"""Sums over roll-ups, and the figures of a report made from them. Nothing measured gives null, never a 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import RowMapping

from kvflags_collector.store.histogram import EMPTY, Histogram

__all__ = ["Totals"]

_MS = 1_000_000


@dataclass(slots=True)
class Totals:
    """Roll-up rows, added up. Sums are those of measured transfers: complete and not failed."""

    transfers: int = 0
    failed: int = 0
    incomplete: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    durations: Histogram = EMPTY
    posts: Histogram = EMPTY

    def add(self, row: RowMapping) -> None:
        """One row of `rollups_minute`."""
        self.transfers += row["transfers"]
        self.failed += row["failed"]
        self.incomplete += row["incomplete"]
        self.errors.update(row["errors"])
        for name in ("bytes", "descriptors", "blocks", "duration_ns_sum", "post_ns_sum"):
            self.sums[name] += row[name]
        self.durations += Histogram.from_bytes(row["duration_hist"])
        self.posts += Histogram.from_bytes(row["post_hist"])

    @classmethod
    def of(cls, parts: Iterable[Totals]) -> Totals:
        """All of them together."""
        whole = cls()
        for part in parts:
            whole.transfers += part.transfers
            whole.failed += part.failed
            whole.incomplete += part.incomplete
            whole.errors.update(part.errors)
            whole.sums.update(part.sums)
            whole.durations += part.durations
            whole.posts += part.posts
        return whole

    def figures(self) -> dict[str, Any]:
        """As the report has them; times in milliseconds, quantiles within 1.09 %."""
        any_, measured = self.transfers > 0, self.transfers - self.failed - self.incomplete
        return {
            "transfers": self.transfers if any_ else None,
            "failed": self.failed if any_ else None,
            "errors": dict(sorted(self.errors.items())),
            "bytes": self.sums["bytes"] if measured else None,
            "descriptors_per_transfer": _ratio(self.sums["descriptors"], measured),
            "blocks_per_transfer": _ratio(self.sums["blocks"], measured),
            "post_ms": _times(self.sums["post_ns_sum"], self.posts),
            "transfer_ms": _times(self.sums["duration_ns_sum"], self.durations),
        }


def _ratio(total: float, number: int) -> float | None:
    return round(total / number, 6) if number else None


def _times(total_ns: int, histogram: Histogram) -> dict[str, float | None]:
    quantiles = {name: histogram.quantile(q) for name, q in (("p50", 0.5), ("p99", 0.99))}
    return {
        "mean": _ratio(total_ns / _MS, histogram.count),
        **{name: None if ns is None else round(ns / _MS, 6) for name, ns in quantiles.items()},
    }
