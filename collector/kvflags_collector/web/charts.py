# SPDX-License-Identifier: Apache-2.0
"""Where the marks of a chart go. Pure: figures of a page's document in, coordinates out; the templates draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import ceil, exp, log
from typing import Any

__all__ = ["area", "forest", "line", "scale"]

# Changes are drawn as log ratios, so that a half and a double lie equally far from no change.
_LEAST, _MOST = log(1.05), log(8)
_TICKS = (-0.8, -0.5, -0.25, -0.1, -0.05, 0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 7.0)
_WIDTH = 600.0
_AREA = (900.0, 180.0)
_LINE = (420.0, 90.0)
_TOP = 8.0


def scale(rows: Sequence[Mapping[str, Any]]) -> float:
    """How far the axis reaches on both sides, as a log ratio: the widest interval, but never beyond eight-fold."""
    ends = [abs(log(1 + row[side])) for row in rows for side in ("low", "high", "change") if _drawable(row[side])]
    return min(max([_LEAST, *(1.1 * end for end in ends)]), _MOST)


def forest(rows: Sequence[Mapping[str, Any]], width: float = _WIDTH) -> dict[str, Any]:
    """`{width, zero, ticks: [{x, says}], rows: [{low, at, high, cut_low, cut_high}]}`; null where nothing is known.

    `low`, `high`: the ends of the interval, cut at the axis' ends; `cut_*` says whether it goes on beyond.
    """
    reach = scale(rows)
    ticks = [
        {"x": _x(log(1 + tick), reach, width), "says": _says(tick)} for tick in _TICKS if abs(log(1 + tick)) <= reach
    ]
    placed = [_placed(row, reach, width) for row in rows]
    return {"width": width, "zero": width / 2, "ticks": _apart(ticks), "rows": placed}


def area(
    points: Sequence[Mapping[str, Any]], kinds: Sequence[str], marks: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """A stack of counts over time, in steps: `{width, height, most, layers: [{kind, path}], marks: [{x, says}]}`."""
    width, height = _AREA
    times = [_seconds(point["at"]) for point in points]
    begin, length = times[0], max(times[-1] - times[0], 1.0)
    most = max(*(sum(point[kind] for kind in kinds) for point in points), 1)
    across = [width * (at - begin) / length for at in times]
    floor = [0] * len(points)
    layers = []
    for kind in kinds:
        top = [below + point[kind] for below, point in zip(floor, points, strict=True)]
        layers.append({"kind": kind, "path": _path(across, floor, top, height / most, height + _TOP)})
        floor = top
    places = [(width * (_seconds(mark["at"]) - begin) / length, mark) for mark in marks]
    return {
        "width": width,
        "height": height,
        "top": _TOP,
        "most": most,
        "layers": layers,
        "marks": [{"x": round(x, 1), **mark} for x, mark in places if 0 <= x <= width],
    }


def line(
    points: Sequence[Mapping[str, Any]], name: str, marks: Sequence[Mapping[str, Any]], span: Mapping[str, Any]
) -> dict[str, Any] | None:
    """One figure of points over time, from 0 up, None where no point has it. Where nothing was measured is a gap.

    `span`: `{since, until, step_s}`. `{width, height, top, most, lines: [{variant, path, last}], marks: [{x, says}]}`.
    """
    known = [point for point in points if point[name] is not None]
    if not known:
        return None
    width, height = _LINE
    begin, most = _seconds(span["since"]), max(point[name] for point in known)
    unit = width / max(_seconds(span["until"]) - begin, 1.0)
    lines = []
    for variant in dict.fromkeys(point["variant"] for point in known):
        mine = [point for point in known if point["variant"] == variant]
        # Each point stands for what began with it.
        places = [(_seconds(one["at"]) - begin + span["step_s"] / 2, one[name]) for one in mine]
        path = _broken([(unit * at, _TOP + height * (1 - y / (most or 1))) for at, y in places], unit * span["step_s"])
        lines.append({"variant": variant, "path": path, "last": mine[-1][name]})
    placed = [{"x": round(unit * (_seconds(mark["at"]) - begin), 1), **mark} for mark in marks]
    seen = [mark for mark in placed if 0 <= mark["x"] <= width]
    return {"width": width, "height": height, "top": _TOP, "most": most, "lines": lines, "marks": seen}


def _broken(places: Sequence[tuple[float, float]], step: float) -> str:
    """A line with a gap wherever the next point is not the next part of time; a point alone is a dot."""
    path, last = "", float("-inf")
    for x, y in places:
        path += f"L{x:.1f},{y:.1f}" if x - last < 1.5 * step else f"M{x:.1f},{y:.1f}h0"
        last = x
    return path


def _path(across: Sequence[float], below: Sequence[int], above: Sequence[int], unit: float, floor: float) -> str:
    """Along the top in steps, and back along what lies under it."""
    over = _steps(across, [floor - unit * value for value in above])
    under = _steps(across, [floor - unit * value for value in below])
    return "M" + "L".join(over + under[::-1]) + "Z"


def _steps(across: Sequence[float], heights: Sequence[float]) -> list[str]:
    """Corners alone: a line that stays level needs none in between."""
    corners = []
    last = None
    for x, y in zip(across, heights, strict=True):
        if last is not None and y != last:
            corners.append(f"{x:.1f},{last:.1f}")
        if y != last:
            corners.append(f"{x:.1f},{y:.1f}")
        last = y
    return [*corners, f"{across[-1]:.1f},{heights[-1]:.1f}"]


def _placed(row: Mapping[str, Any], reach: float, width: float) -> dict[str, Any] | None:
    if not _drawable(row["change"]):
        return None
    low, high = (log(1 + row[end]) if _drawable(row[end]) else sign * reach for end, sign in (("low", -1), ("high", 1)))
    return {
        "low": _x(low, reach, width),
        "at": _x(log(1 + row["change"]), reach, width),
        "high": _x(high, reach, width),
        "cut_low": row["low"] is None or low < -reach,
        "cut_high": row["high"] is None or high > reach,
    }


def _apart(ticks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without those whose words would run into each other; no change always stays."""
    kept: list[dict[str, Any]] = []
    for tick in sorted(ticks, key=lambda one: abs(one["x"] - _WIDTH / 2)):
        if all(abs(tick["x"] - other["x"]) >= 48 for other in kept):
            kept.append(tick)
    return sorted(kept, key=lambda one: one["x"])


def _x(value: float, reach: float, width: float) -> float:
    inside = min(max(value, -reach), reach)
    return round(width * (inside + reach) / (2 * reach), 1)


def _says(change: float) -> str:
    return "no change" if not change else f"{change:+.0%}" if change < 1 else f"x{ceil(exp(log(1 + change)) - 0.5)}"


def _drawable(change: float | None) -> bool:
    return change is not None and change > -1


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
