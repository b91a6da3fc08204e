# SPDX-License-Identifier: Apache-2.0
"""An interval as a bar of characters, around no change: `   ├───●───┤ │          `."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, log1p
from typing import Any

__all__ = ["bar", "reach"]

# Odd, so that no change has a cell of its own.
_CELLS = 25
# 5 % to both sides at least, or noise would fill the bar; eight-fold at most, or one wild interval would hide the rest.
_LEAST, _MOST = 0.05, 2.1
_MARKS = ("low", "change", "high")


def reach(effects: Iterable[Mapping[str, Any]]) -> float:
    """How far the bars of these effects go to both sides, as a log ratio: one axis for all of them."""
    ends = [abs(_log(one[name])) for one in effects for name in _MARKS if one[name] is not None]
    return min(max([_LEAST, *ends]), _MOST)


def bar(effect: Mapping[str, Any], reach: float) -> str:
    """`low`, `change` and `high` are ratios less 1; an end beyond the axis, or without bound, is an arrow."""
    if effect["change"] is None:
        return ""
    low = -inf if effect["low"] is None else _log(effect["low"])
    high = inf if effect["high"] is None else _log(effect["high"])
    first, at, last = (_cell(value, reach) for value in (low, _log(effect["change"]), high))
    cells = [" "] * _CELLS
    cells[first:last] = "─" * (last - first)
    cells[first], cells[last] = "◂" if low < -reach else "├", "▸" if high > reach else "┤"
    cells[_CELLS // 2] = "│" if cells[_CELLS // 2] == " " else "┼"
    cells[at] = "●"
    return "".join(cells)


def _log(change: float) -> float:
    return log1p(change) if change > -1 else -inf


def _cell(value: float, reach: float) -> int:
    inside = min(max(value, -reach), reach)
    return round((inside / reach + 1) / 2 * (_CELLS - 1))
