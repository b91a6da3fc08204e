# SPDX-License-Identifier: Apache-2.0
"""Exponential histograms of a fixed scale: merged by adding integers, so any order and any machine gives the same bits.

OpenTelemetry's mapping at scale 5: bucket i holds values in (2^(i/32), 2^((i+1)/32)], 2.2 % wide, so that a value given
back from the middle of its bucket is off by at most 1.09 %. Values at or below 0 have a bucket of their own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Self

import numpy as np
import numpy.typing as npt

__all__ = ["EMPTY", "SCALE", "Histogram"]

SCALE = 5
_PER_OCTAVE = 1 << SCALE
# The inner bounds of one octave as mantissas in [0.5, 1). A table and not a logarithm: the last bit of log2 differs
# between libraries, and would put a value on a bound into different buckets.
_MANTISSAS = np.exp2(np.arange(_PER_OCTAVE) / _PER_OCTAVE - 1.0)

# version, scale, unused, index of the first bucket, values at or below zero; the buckets follow as little-endian u32.
_HEADER = struct.Struct("<BbHiQ")
_HEADERS = np.dtype([("version", "u1"), ("scale", "i1"), ("unused", "<u2"), ("offset", "<i4"), ("zeros", "<u8")])
_VERSION = 1
_FULL = (1 << 32) - 1

Counts = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False, slots=True)
class Histogram:
    """`counts[k]` values in bucket `offset + k`; `zeros` at or below 0. The first and last count are never 0.

    `scale`: ours is 5; what clients send may be coarser, and so is what it was merged into.
    """

    offset: int
    counts: Counts
    zeros: int = 0
    scale: int = SCALE

    @classmethod
    def of(cls, values: Iterable[int], weights: Iterable[int] | None = None) -> Self:
        """The histogram of integers below 2^63; each counted once, or as often as its weight says."""
        given = np.fromiter(values, dtype=np.float64)
        counted = None if weights is None else np.fromiter(weights, dtype=np.float64)
        positive = given > 0
        zeros = int(np.sum(~positive if counted is None else counted[~positive]))
        if not positive.any():
            return cls(0, np.zeros(0, np.uint64), zeros)
        mantissa, exponent = np.frexp(given[positive])
        index = (exponent - 1) * _PER_OCTAVE + np.searchsorted(_MANTISSAS, mantissa, side="left") - 1
        offset = int(index.min())
        counts = np.bincount(index - offset, None if counted is None else counted[positive])
        return cls(offset, counts.astype(np.uint64), zeros)

    @classmethod
    def total(cls, stored: Sequence[bytes]) -> Histogram:
        """The sum of stored histograms: as adding them one by one, at a tenth of the cost where their scales agree."""
        heads = np.frombuffer(b"".join([one[: _HEADER.size] for one in stored]), _HEADERS)
        if not len(heads) or np.any(heads["version"] != _VERSION) or np.any(heads["scale"] != heads["scale"][0]):
            parts = [cls.from_bytes(one) for one in stored]
            return sum(parts[1:], parts[0]) if parts else EMPTY
        zeros, scale = int(heads["zeros"].sum()), int(heads["scale"][0])
        counts = np.frombuffer(b"".join([one[_HEADER.size :] for one in stored]), "<u4")
        if not counts.size:
            return cls(0, np.zeros(0, np.uint64), zeros, scale)
        sizes = np.fromiter(map(len, stored), np.int64) // 4 - _HEADER.size // 4
        # Where the first bucket of each would be in `counts` if that were its index.
        bases = heads["offset"] - (np.cumsum(sizes) - sizes)
        index = np.repeat(bases, sizes) + np.arange(counts.size)
        offset = int(index.min())
        # Summed as floating point, which is exact below 2^53: two million full buckets.
        return cls(offset, np.bincount(index - offset, counts).astype(np.uint64), zeros, scale)

    def __add__(self, other: Histogram) -> Histogram:
        """Both together, at the coarser of their scales: commutative and associative, without rounding."""
        scale = min(self.scale, other.scale)
        zeros = self.zeros + other.zeros
        parts = [one.downscaled(scale) for one in (self, other) if one.counts.size]
        if not parts:
            return Histogram(0, self.counts, zeros, scale)
        offset = min(part.offset for part in parts)
        end = max(part.offset + part.counts.size for part in parts)
        counts = np.zeros(end - offset, np.uint64)
        for part in parts:
            counts[part.offset - offset : part.offset - offset + part.counts.size] += part.counts
        return Histogram(offset, counts, zeros, scale)

    def downscaled(self, scale: int) -> Histogram:
        """The same values at a scale no finer than this one: each step down joins two neighbours, exactly."""
        if scale == self.scale or not self.counts.size:
            return Histogram(self.offset, self.counts, self.zeros, scale)
        index = (self.offset + np.arange(self.counts.size)) >> (self.scale - scale)
        counts = np.zeros(int(index[-1] - index[0]) + 1, np.uint64)
        np.add.at(counts, index - index[0], self.counts)
        return Histogram(int(index[0]), counts, self.zeros, scale)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    @property
    def count(self) -> int:
        """How many values were recorded."""
        return self.zeros + int(self.counts.sum())

    def quantile(self, q: float) -> float | None:
        """The value of rank ceil(q * count), at scale 5 within 1.09 %; None of nothing. `q` in [0, 1]."""
        if not self.count:
            return None
        rank = max(1, ceil(q * self.count))
        if rank <= self.zeros:
            return 0.0
        bucket = int(np.searchsorted(np.cumsum(self.counts), rank - self.zeros))
        low, high = (float(2 ** ((self.offset + bucket + side) * 2.0**-self.scale)) for side in (0, 1))
        # The harmonic middle: the same relative distance to both bounds.
        return 2 * low * high / (low + high)

    def to_bytes(self) -> bytes:
        """As stored: 16 bytes and 4 for each bucket; equal ones give equal bytes. A bucket is full at 2^32 - 1."""
        counts = np.minimum(self.counts, _FULL).astype("<u4")
        return _HEADER.pack(_VERSION, self.scale, 0, self.offset, self.zeros) + counts.tobytes()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        """What `to_bytes` gave. Raises ValueError for another version."""
        version, scale, _, offset, zeros = _HEADER.unpack_from(stored)
        if version != _VERSION:
            raise ValueError(f"a histogram of version {version}, not {_VERSION}")
        return cls(offset, np.frombuffer(stored, "<u4", offset=_HEADER.size).astype(np.uint64), zeros, scale)


EMPTY = Histogram(0, np.zeros(0, np.uint64))
