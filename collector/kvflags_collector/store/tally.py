# SPDX-License-Identifier: Apache-2.0
"""From transfers to the rows of a minute. Pure, and exact: the same transfers in any order give the same bytes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import fsum, log
from typing import Any

from kvflags_collector.store.histogram import Histogram
from kvflags_collector.store.transfers import Key, Transfer

__all__ = ["tally"]

# What a column can hold. Sums stop there, so that one absurd span cannot keep its minute from ever being rolled.
_INT64_MAX = (1 << 63) - 1


def tally(minute_us: int, transfers: Iterable[Transfer]) -> list[dict[str, Any]]:
    """The rows of `rollups_minute`, ordered by key."""
    groups: dict[Key, list[Transfer]] = defaultdict(list)
    for transfer in transfers:
        groups[transfer.key].append(transfer)
    return [{"minute_us": minute_us, **key._asdict(), **_columns(group)} for key, group in sorted(groups.items())]


def _columns(group: Sequence[Transfer]) -> dict[str, Any]:
    errors = Counter(transfer.error for transfer in group if transfer.error is not None)
    measured = [transfer for transfer in group if transfer.error is None and transfer.complete]
    return {
        "transfers": len(group),
        "incomplete": len(group) - errors.total() - len(measured),
        "failed": errors.total(),
        "errors": dict(sorted(errors.items())),
        "bytes": _total(transfer.bytes for transfer in measured),
        "descriptors": _total(transfer.descriptors for transfer in measured),
        "blocks": _total(transfer.blocks for transfer in measured),
        **_times([transfer.duration_ns for transfer in measured]),
        **_posts([transfer.post_ns for transfer in measured if transfer.post_ns is not None]),
    }


def _times(durations: list[int]) -> dict[str, Any]:
    return {
        "duration_ns_sum": _total(durations),
        # fsum rounds once, at the end: a plain sum would depend on the order.
        "duration_log_sum": fsum(log(duration) for duration in durations if duration),
        "duration_ns_min": min(durations, default=None),
        "duration_ns_max": max(durations, default=None),
        "duration_hist": Histogram.of(durations).to_bytes(),
    }


def _posts(posts: list[int]) -> dict[str, Any]:
    return {"post_ns_sum": _total(posts), "post_hist": Histogram.of(posts).to_bytes()}


def _total(values: Iterable[int]) -> int:
    return min(sum(values), _INT64_MAX)
