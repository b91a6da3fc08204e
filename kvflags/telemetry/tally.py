# SPDX-License-Identifier: Apache-2.0
"""What one engine's front end saw since its last export: counts and histograms, folded on the spot.

Not the SDK's instruments: one value costs them 20 us and more, and a front end passes thousands of tokens a second on
the thread that answers clients. Folding costs 0.4 us a value and is bounded by its buckets, so nothing is dropped.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, log2
from time import time_ns

from kvflags.telemetry.instruments import InstrumentName

__all__ = ["SCALE", "Buckets", "Interval", "Tally"]

# The scale that the collector keeps: 32 buckets in each octave, 2.2 % wide.
SCALE = 5
_PER_OCTAVE = 1 << SCALE
# The collector's bounds: what is below a nanosecond counts as zero, what is above 30 years is a broken clock.
_LEAST, _MOST = 1e-9, 1e9


@dataclass(slots=True)
class Buckets:
    """An exponential histogram. `counts[i]`: values in (2^((i-1)/32), 2^(i/32)]; that is OTLP's bucket i - 1."""

    counts: Counter[int] = field(default_factory=Counter)
    zeros: int = 0
    total: float = 0.0
    least: float = inf
    most: float = -inf

    def add(self, values: Sequence[float]) -> None:
        """Fold them in. NaN, infinities and what no clock can measure are left out."""
        usable = [value for value in values if _LEAST < value < _MOST]
        if len(usable) < len(values):
            zeros = sum(value <= _LEAST for value in values)
            self.zeros += zeros
            self._range([0.0] * (zeros > 0))
        self.counts.update([ceil(log2(value) * _PER_OCTAVE) for value in usable])
        self.total += sum(usable)
        self._range(usable)

    def _range(self, values: Sequence[float]) -> None:
        if values:
            self.least, self.most = min(self.least, *values), max(self.most, *values)


@dataclass(slots=True)
class Interval:
    """From `start_ns` to `end_ns`, both since the epoch. The second part of a sum's key is what it is split by."""

    start_ns: int
    end_ns: int = 0
    histograms: dict[InstrumentName, Buckets] = field(default_factory=dict)
    sums: Counter[tuple[InstrumentName, str]] = field(default_factory=Counter)

    def observe(self, name: InstrumentName, values: Sequence[float]) -> None:
        if values:
            buckets = self.histograms.get(name)
            if buckets is None:
                buckets = self.histograms[name] = Buckets()
            buckets.add(values)

    def count(self, name: InstrumentName, number: int, split_by: str = "") -> None:
        if number > 0:
            self.sums[name, split_by] += number


class Tally:
    """One engine's. The front end's loop adds, the export thread takes; neither waits longer than an addition."""

    def __init__(self, clock: Callable[[], int] = time_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._interval = Interval(clock())

    def add(self, fold: Callable[[Interval], None]) -> None:
        """Let `fold` add to the current interval."""
        with self._lock:
            fold(self._interval)

    def take(self) -> Interval:
        """End the interval and begin the next, which starts where this one ends."""
        # A clock that was set back must not make an interval of negative length.
        now = max(self._clock(), self._interval.start_ns + 1)
        with self._lock:
            taken, self._interval = self._interval, Interval(now)
        taken.end_ns = now
        return taken
