# SPDX-License-Identifier: Apache-2.0
"""Arrow arrays as numpy reads them: straight from the buffers.

pyarrow's own conversions box every value (100 ns each), and some look for pandas at every call. The arrays must begin
at the start of their buffers, as those do that come from another library.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from kvflags_collector.ingest.spans.wire import Ints

__all__ = ["Array", "Slices", "bits", "flat", "ints", "present", "sizes", "values"]

# pyarrow comes without types.
Array: TypeAlias = Any


class Slices(Sequence[bytes]):
    """The values of an array of byte strings, each made when it is asked for."""

    def __init__(self, column: Array) -> None:
        self._data = bytearray(column.buffers()[2] or b"")
        self._bounds: list[int] = _offsets(column).tolist()

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(at, slice):
            return [self[one] for one in range(len(self))[at]]
        return bytes(self._data[self._bounds[at] : self._bounds[at + 1]])

    def __iter__(self) -> Iterator[bytes]:
        return map(bytes, self.bytearrays())

    def bytearrays(self) -> list[bytearray]:
        data, bounds = self._data, self._bounds
        return [data[begin:end] for begin, end in pairwise(bounds)]


def flat(lists: Array) -> tuple[Array, Ints]:
    """The items of all lists, and of each item the number of its list."""
    return lists.values, np.repeat(np.arange(len(lists)), sizes(lists))


def sizes(column: Array) -> Ints:
    """Length of each list or byte string."""
    return np.diff(_offsets(column))


def values(column: Array, kind: DTypeLike) -> NDArray[Any]:
    """Numbers as they are; what stands where there is none is not said."""
    return np.frombuffer(column.buffers()[1] or b"", kind, len(column))


def ints(column: Array) -> Ints:
    """Numbers of any width as int64."""
    # Arrow and numpy call them alike. to_pandas_dtype() would look for pandas at every call, which takes 0.2 ms.
    return values(column, np.dtype(str(column.type))).astype(np.int64)


def bits(column: Array, buffer: int) -> NDArray[np.bool_]:
    """One bit for each value: with buffer 0 whether there is one, with 1 the values of an array of booleans."""
    packed = column.buffers()[buffer]
    if packed is None:
        return np.full(len(column), buffer == 0)
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=len(column), bitorder="little").astype(bool)


def present(struct: Array, name: str) -> Array:
    """A field of a struct that may be absent, which reads as the field's own default."""
    column = struct.field(name)
    if not struct.null_count:
        return column
    default = pa.scalar(b"" if pa.types.is_binary(column.type) else 0, column.type)
    return pc.if_else(struct.is_valid(), column, default)


def _offsets(column: Array) -> Ints:
    """Of lists and byte strings alike."""
    if not len(column):
        return np.zeros(1, np.int64)
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1).astype(np.int64)
