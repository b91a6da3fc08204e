# SPDX-License-Identifier: Apache-2.0
"""What a page's address asks for: the address is the view, so that a link shows the same to whoever opens it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from urllib.parse import urlencode

__all__ = ["Asked", "asked"]

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """q: a part of deployments' names. arm: treatment, control or none. outcome: of the forest plot. page: from 1."""

    q: str = ""
    arm: str = ""
    outcome: str = ""
    page: int = 1

    def address(self, **other: str | int) -> str:
        """The query string of this view, some of it changed; empty for the plain page."""
        given = asdict(self) | other
        plain = asdict(Asked())
        text = urlencode({name: value for name, value in given.items() if value != plain[name]})
        return f"?{text}" if text else ""


def asked(query: Mapping[str, str]) -> Asked:
    """What is too long, unknown or no number is left out: an address always shows a page.

    So is what cannot be seen, such as the mark that comes along when a name is copied out of a chat: no name has any.
    """
    page = query.get("page", "")
    return Asked(
        q=_seen(query.get("q", "")),
        arm=query.get("arm", "") if query.get("arm") in {"treatment", "control", "none"} else "",
        outcome=_seen(query.get("outcome", "")),
        page=max(int(page), 1) if page.isascii() and page.isdecimal() and len(page) < 7 else 1,
    )


def _seen(text: str) -> str:
    return "".join(filter(str.isprintable, text)).strip()[:_LONGEST]
