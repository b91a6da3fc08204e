# SPDX-License-Identifier: Apache-2.0
"""What a roll-up row measures, and how rows are added up. Pure, and free of order: any way of adding gives the same.

Integers and histograms are exact. Sums of floating point are rounded once for each level (minute, hour, day), so they
too depend only on what was added, not on when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import fsum
from typing import Any, NamedTuple

from kvflags_collector.store.histogram import EMPTY, Histogram

__all__ = ["NOTHING", "Measures", "merge", "total"]

# A histogram, as `Histogram.to_bytes` gives it. A field below has the type's own name.
Stored = bytes
# What a column can hold. Sums stop there, so that one absurd span cannot keep its minute from ever being rolled.
_INT64_MAX = (1 << 63) - 1


class Measures(NamedTuple):
    """The columns of a roll-up row beside its time and key, named as there; see `rollup_tables` for what they count.

    Times are nanoseconds, `sq` their squares and `log` their natural logarithms; the histograms are stored ones.
    """

    seen: int
    transfers: int
    incomplete: int
    failed: int
    late: int
    errors: dict[str, int]
    bytes: int
    descriptors: int
    blocks: int
    duration_ns_sum: int
    post_ns_sum: int
    duration_sq_sum: float
    duration_log_sum: float
    duration_log_sq_sum: float
    duration_ns_min: int | None
    duration_ns_max: int | None
    duration_hist: Stored
    post_hist: Stored


def total(values: Iterable[int]) -> int:
    """A sum of what is not negative, as far as a column can hold it."""
    return min(sum(values), _INT64_MAX)


_EMPTY = EMPTY.to_bytes()
NOTHING = Measures(0, 0, 0, 0, 0, {}, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, None, None, _EMPTY, _EMPTY)


def merge(parts: Sequence[Measures]) -> Measures:
    """All of them together; NOTHING of none."""
    if len(parts) < 2:
        return parts[0] if parts else NOTHING
    # By columns: sum() over a column is C, and most of a report's time goes by here.
    return Measures(*(how(column) for how, column in zip(_HOW, zip(*parts, strict=True), strict=True)))


def _errors(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    errors: Counter[str] = Counter()
    for part in parts:
        if part:
            errors.update(part)
    return {kind: min(number, _INT64_MAX) for kind, number in sorted(errors.items())}


def _least(values: Iterable[int | None]) -> int | None:
    return min((one for one in values if one is not None), default=None)


def _most(values: Iterable[int | None]) -> int | None:
    return max((one for one in values if one is not None), default=None)


def _histogram(stored: Sequence[bytes]) -> bytes:
    return Histogram.total(stored).to_bytes()


# How each of the fields is added up, in their order.
_HOW: tuple[Callable[[Sequence[Any]], Any], ...] = (
    *[total] * 5,
    _errors,
    *[total] * 5,
    *[fsum] * 3,
    _least,
    _most,
    _histogram,
    _histogram,
)
