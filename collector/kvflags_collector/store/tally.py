# SPDX-License-Identifier: Apache-2.0
"""From transfers to the rows of a minute. Pure, and exact: the same transfers in any order give the same bytes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import fsum, log
from typing import Any

from kvflags_collector.store.histogram import Histogram
from kvflags_collector.store.measures import NOTHING, Measures, total
from kvflags_collector.store.transfers import Key, Transfer

__all__ = ["tally"]


def tally(transfers: Iterable[Transfer]) -> dict[Key, Measures]:
    """What each key of the roll-ups measured, in order of the keys."""
    groups: dict[Key, list[Transfer]] = defaultdict(list)
    for transfer in transfers:
        groups[transfer.key].append(transfer)
    return {key: _measures(group) for key, group in sorted(groups.items())}


def _measures(group: Sequence[Transfer]) -> Measures:
    known = [one for one in group if not one.late]
    measured = [one for one in known if one.error is None and one.complete]
    errors: Counter[str] = Counter()
    for one in known:
        if one.error is not None:
            errors[one.error] += one.weight
    transfers = sum(one.weight for one in known)
    return NOTHING._replace(
        seen=len(known),
        transfers=transfers,
        incomplete=transfers - errors.total() - sum(one.weight for one in measured),
        failed=errors.total(),
        late=len(group) - len(known),
        errors=dict(sorted(errors.items())),
        bytes=total(one.weight * one.bytes for one in measured),
        descriptors=total(one.weight * one.descriptors for one in measured),
        blocks=total(one.weight * one.blocks for one in measured),
        **_durations([(one.duration_ns, one.weight) for one in measured]),
        **_posts([(one.post_ns, one.weight) for one in measured if one.post_ns is not None]),
    )


def _durations(weighed: list[tuple[int, int]]) -> dict[str, Any]:
    durations = [duration for duration, _ in weighed]
    logs = [(log(duration), weight) for duration, weight in weighed if duration]
    return {
        "duration_ns_sum": total(duration * weight for duration, weight in weighed),
        # Integers as far as they go; of the logarithms fsum rounds once, at the end: a plain sum depends on the order.
        "duration_sq_sum": float(sum(duration * duration * weight for duration, weight in weighed)),
        "duration_log_sum": fsum(value * weight for value, weight in logs),
        "duration_log_sq_sum": fsum(value * value * weight for value, weight in logs),
        "duration_ns_min": min(durations, default=None),
        "duration_ns_max": max(durations, default=None),
        "duration_hist": Histogram.of(durations, [weight for _, weight in weighed]).to_bytes(),
    }


def _posts(weighed: list[tuple[int, int]]) -> dict[str, Any]:
    return {
        "post_ns_sum": total(post * weight for post, weight in weighed),
        "post_hist": Histogram.of((post for post, _ in weighed), [weight for _, weight in weighed]).to_bytes(),
    }
