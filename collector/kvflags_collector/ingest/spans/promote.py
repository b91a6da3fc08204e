# SPDX-License-Identifier: Apache-2.0
"""From a request's attributes to the columns of `spans`: of each either one value for all its spans, or a list."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvflags_collector.ingest.spans.slots import COLUMNS
from kvflags_collector.ingest.spans.wire import Entries, Ints, Wire

__all__ = ["Columns", "promote"]

_ABSENT = -1


class Columns:
    """Columns of one length. A column that is NULL throughout is in neither mapping.

    constant: column -> the value of every span. varying: column -> values in the order of the spans.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.constant: dict[str, Any] = {}
        self.varying: dict[str, list[Any]] = {}

    def coded(self, name: str, values: list[Any], codes: Ints) -> None:
        """A column whose value in each row is that of `values` at the row's code."""
        if not self.size or len(values) == 1 or (codes == codes[0]).all():
            value = values[codes[0]] if self.size else None
            if value is not None:
                self.constant[name] = value
        else:
            self.varying[name] = [values[code] for code in codes.tolist()]

    def values(self, name: str) -> list[Any]:
        """A column in full."""
        return self.varying[name] if name in self.varying else [self.constant.get(name)] * self.size


def promote(wire: Wire, kept: NDArray[np.bool_], columns: Columns) -> None:
    """Add the columns that attributes of spans fill, of the spans that are kept."""
    # Of every span and column, the attribute that fills it. Of several under one name the last one counts.
    grid = np.full((len(COLUMNS), len(kept)), _ABSENT, np.int64)
    slots = wire.entries.slot[wire.entry]
    filling = slots >= 0
    grid[slots[filling], wire.owner[filling]] = wire.entry[filling]
    for (name, kind), row in zip(COLUMNS, grid, strict=True):
        _column(name, kind == "string_value", row[kept], wire.entries, columns)


def _column(name: str, is_text: bool, found: Ints, entries: Entries, columns: Columns) -> None:
    if not len(found) or found.max() == _ABSENT:
        return
    source = entries.text if is_text else entries.number
    if (found == found[0]).all():
        columns.constant[name] = source[found[0]] if is_text else int(source[found[0]])
        columns.varying.pop(name, None)
        return
    values = source[found].tolist()
    if found.min() == _ABSENT:
        default = columns.values(name)
        values = [value if at >= 0 else default[row] for row, (at, value) in enumerate(zip(found, values, strict=True))]
    columns.constant.pop(name, None)
    columns.varying[name] = values
