# SPDX-License-Identifier: Apache-2.0
"""The one look of our tables: no borders, two blanks between columns, cells folded and never cut off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

__all__ = ["heading", "pairs", "table"]

# How a column's name begins says how it is set: numbers flush right, and what may be long folded in a narrow terminal.
# Every other column keeps its words whole.
_RIGHT, _FOLDS = ">", "~"


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Columns by name: `>NAME` for numbers, `~NAME` for ids and sentences."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        drawn.add_column(
            name.lstrip(_RIGHT + _FOLDS),
            justify="right" if name.startswith(_RIGHT) else "left",
            no_wrap=not name.startswith(_FOLDS),
            overflow="fold",
        )
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
