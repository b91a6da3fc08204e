# SPDX-License-Identifier: Apache-2.0
"""Text that anybody may have written, so that showing it can do nothing but show it."""

from __future__ import annotations

import unicodedata

__all__ = ["inert"]

# Cc: control characters, with the terminal's escape. Cf: invisible, with the marks that turn the direction of what
# follows. Zl, Zp: line breaks that few readers know. Cs, Co: no characters at all.
_ACTIVE = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co"})
# The joiners belong to how words of Persian or Hindi, and many emoji, are spelt, and do nothing by themselves.
_HARMLESS = frozenset("\n\t\u200c\u200d")


def inert(text: str) -> str:
    """The same text with what would act on its surroundings written out: ESC as `\\x1b`. Lines end in a line feed.

    What is inert already comes back as it is, so it may be applied again.
    """
    return "".join(map(_shown, text.replace("\r\n", "\n")))


def _shown(character: str) -> str:
    if character in _HARMLESS or unicodedata.category(character) not in _ACTIVE:
        return character
    return ascii(character)[1:-1]
