# SPDX-License-Identifier: Apache-2.0
"""A guide whose transcripts are true: its commands are run, and what they print is held against what it shows.

Blocks marked `console` hold lines that begin with `$ ` and what they print. Comments between them say what the fleet
does meanwhile: `<!-- fleet: start r1 -->`, `<!-- fleet: replace -->`, `<!-- fleet: pass 3d -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Piece", "pieces"]

_PIECE = re.compile(r"^<!-- fleet: (?P<act>[^\n]+) -->$|^```console\n(?P<shown>.*?)^```$", re.MULTILINE | re.DOTALL)


class Piece(NamedTuple):
    """What the fleet does, or the block that is shown; `text` from `begin` to `end` of the page."""

    kind: str
    text: str
    begin: int
    end: int

    @property
    def commands(self) -> list[str]:
        """The command lines of a block, without the prompt."""
        return [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]


def pieces(page: str) -> Iterator[Piece]:
    """In the order in which they stand."""
    for match in _PIECE.finditer(page):
        kind = "act" if match["act"] is not None else "shown"
        yield Piece(kind, match[kind], match.start(kind), match.end(kind))
