# SPDX-License-Identifier: Apache-2.0
"""The one look of our tables: no borders, two blanks between columns, cells folded and never cut off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

__all__ = ["heading", "pairs", "table"]

# A column whose name begins with this is set flush right: numbers.
_RIGHT = ">"


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Columns by name, `>NAME` for numbers. Words are folded where the terminal is narrow, so that nothing is lost."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        right = name.startswith(_RIGHT)
        drawn.add_column(name.removeprefix(_RIGHT), justify="right" if right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    return drawn


def pairs(rows: Iterable[tuple[str, str | Text]]) -> Table:
    """A name and its value per line."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    drawn.add_column(style="dim", no_wrap=True)
    drawn.add_column(overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    return drawn


def heading(words: str) -> Text:
    return Text(f"\n{words}", style="bold")
