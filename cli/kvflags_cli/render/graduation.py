# SPDX-License-Identifier: Apache-2.0
"""What was declared with a flag: each criterion met or not with its numbers, and its expiry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

__all__ = ["expiry", "graduation"]

_MARKS = {True: ("✓", "green"), False: ("✗", "yellow"), None: ("…", "cyan")}


def graduation(found: dict[str, Any]) -> Iterator[tuple[str, str | Text]]:
    """A line for each criterion and one for the expiry; nothing where none was declared."""
    met = sum(one["met"] is True for one in found["criteria"])
    for number, one in enumerate(found["criteria"]):
        icon, colour = _MARKS[one["met"]]
        words = {True: "met", False: "not met", None: "open"}[one["met"]]
        line = Text.assemble((f"{icon} {words}", colour), f"  {one['says']}  ({one['detail']})")
        yield f"criteria, {met} of {len(found['criteria'])}" if number == 0 else "", line
    if found["expires"]:
        yield "expires", expiry(found["expires"], expired=found["expired"])


def expiry(day: str, *, expired: bool) -> Text:
    """The day, and that it is over."""
    return Text(f"{day}: EXPIRED, extend or archive it", style="bold red") if expired else Text(day)
