# SPDX-License-Identifier: Apache-2.0
"""One document, and one rendering of it, for all who ask for the same at once: fifty cost little more than one."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kvflags_collector.web.render import render
from kvflags_collector.web.viewer import Viewer

__all__ = ["Shared", "Shown"]

# A document of a thousand deployments takes 0.5 MB in memory; addresses with other filters are other ones.
_MOST = 64
# Looks of one document: of everybody who has a token of their own. A thousand deployments are 72 kB each.
_MOST_LOOKS = 32
# Stands for what every form of a session holds. As long, and nobody knows it.
_FORM = secrets.token_hex(32)


class Shown:
    """A document and what it looks like. Any thread may ask."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._looks: dict[tuple[str, Viewer], str] = {}
        self._lock = threading.Lock()

    def page(self, template: str, viewer: Viewer) -> str:
        """As HTML. Rendered once for all who are called and may do the same."""
        anyone = replace(viewer, form=_FORM)
        with self._lock:
            if (template, anyone) not in self._looks:
                if len(self._looks) >= _MOST_LOOKS:
                    self._looks.clear()
                self._looks[template, anyone] = render(template, {"page": self.document, "viewer": anyone})
            found = self._looks[template, anyone]
        return found.replace(_FORM, viewer.form)


@dataclass(slots=True)
class _Place:
    shown: Shown | None = None
    stamp: Hashable = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Shared:
    """The documents that were asked for last, `most` of them. Any thread may ask, the event loop's never."""

    def __init__(self, *, most: int = _MOST) -> None:
        self._most = most
        self._places: OrderedDict[Hashable, _Place] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, what: Hashable, stamp: Hashable, make: Callable[[], Mapping[str, Any]]) -> Shown:
        """The document of `what`, made by one of those who ask; the others wait for it. Blocks as `make` does.

        stamp: whatever is another once the document would be.
        """
        place = self._place(what)
        with place.lock:
            if place.shown is None or place.stamp != stamp:
                place.shown, place.stamp = Shown(make()), stamp
            return place.shown

    def _place(self, what: Hashable) -> _Place:
        with self._lock:
            place = self._places.setdefault(what, _Place())
            self._places.move_to_end(what)
            while len(self._places) > self._most:
                self._places.popitem(last=False)
            return place
