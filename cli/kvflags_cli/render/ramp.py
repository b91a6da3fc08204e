# SPDX-License-Identifier: Apache-2.0
"""A ramp in two lines: its steps with the one in force marked, and what the next one waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["ramp"]


def ramp(ramp: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Nothing where none is laid out."""
    if ramp is None:
        return
    marked = (f"[{one['says']}]" if at == ramp["at"] else one["says"] for at, one in enumerate(ramp["steps"]))
    yield "ramp", " → ".join(marked)
    yield "next step", "; ".join(ramp["waiting_for"]) or ("none" if ramp["at"] + 1 == len(ramp["steps"]) else "due")
