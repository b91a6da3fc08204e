# SPDX-License-Identifier: Apache-2.0
"""The part of a report that compares: the arms side by side, one measure a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import RenderableType

from kvflags_cli.render.numbers import ABSENT, amount, count, milliseconds, size
from kvflags_cli.render.tables import table

__all__ = ["arms"]

Json = dict[str, Any]

_Measure = tuple[str, Callable[[Json], str]]

_COUNTS: tuple[_Measure, ...] = (
    ("deployments", lambda arm: count(arm["deployments"])),
    ("transfers", lambda arm: count(arm["transfers"])),
    ("failed", lambda arm: count(arm["failed"])),
)
_AMOUNTS: tuple[_Measure, ...] = (
    ("bytes", lambda arm: size(arm["bytes"])),
    ("descriptors per transfer", lambda arm: amount(arm["descriptors_per_transfer"])),
    ("blocks per transfer", lambda arm: amount(arm["blocks_per_transfer"])),
    ("post time mean", lambda arm: milliseconds(arm["post_ms"], "mean")),
    ("post time p50", lambda arm: milliseconds(arm["post_ms"], "p50")),
    ("post time p99", lambda arm: milliseconds(arm["post_ms"], "p99")),
    ("transfer time mean", lambda arm: milliseconds(arm["transfer_ms"], "mean")),
    ("transfer time p50", lambda arm: milliseconds(arm["transfer_ms"], "p50")),
    ("transfer time p99", lambda arm: milliseconds(arm["transfer_ms"], "p99")),
)


def arms(sides: list[Json]) -> RenderableType | None:
    """None where there is no arm yet. Failures are broken down by kind below their sum."""
    if not sides:
        return None
    kinds = sorted({kind for arm in sides for kind in arm["errors"] or {}})
    return table(
        ("", *(f">{(arm['arm'] or 'no arm').upper()}" for arm in sides)),
        [
            *((name, *map(read, sides)) for name, read in _COUNTS),
            *((f"  {kind}", *(_failures(arm, kind) for arm in sides)) for kind in kinds),
            *((name, *map(read, sides)) for name, read in _AMOUNTS),
        ],
    )


def _failures(arm: Json, kind: str) -> str:
    # A kind that did not occur is 0 only where something was transferred.
    return ABSENT if arm["transfers"] is None else count((arm["errors"] or {}).get(kind, 0))
