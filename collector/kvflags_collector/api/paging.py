# SPDX-License-Identifier: Apache-2.0
"""Lists in pages: at most `limit` items, and a cursor to the rest. A cursor is the key of a page's last item, so items
that come and go meanwhile neither repeat nor hide another."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import BaseModel

from kvflags.errors import UsageError
from kvflags_collector.store.places import Key, Keyed, Place

__all__ = ["Listed", "Paged"]

# A page is read in one go and put together in memory; what is shown of one deployment takes some milliseconds.
_USUAL, _MOST = 100, 1000
# Room for the longest key, names of 253 characters of 4 bytes.
_CURSOR = 4096
_LARGEST = 2**63 - 1


class Listed(BaseModel):
    """One page. `next`: the cursor of the page after it, null on the last."""

    items: list[dict[str, Any]]
    next: str | None


@dataclass(frozen=True, slots=True)
class _Paged:
    limit: int
    cursor: str | None

    def __call__(self, name: str, key: tuple[type[int | str], ...], found: Callable[[Place], list[Keyed]]) -> Listed:
        """The page that was asked for. name: the list's, which a cursor belongs to. key: the types of its keys.

        UsageError for a cursor that is not of this list.
        """
        after = None if self.cursor is None else _decoded(self.cursor, name, key)
        # One more than is shown says whether there is a page behind this one.
        items = found(Place(after, self.limit + 1))
        more = len(items) > self.limit
        shown = items[: self.limit]
        following = _encoded(name, shown[-1][0]) if more else None
        return Listed(items=[item for _, item in shown], next=following)


async def _paged(
    limit: Annotated[int, Query(ge=1, le=_MOST)] = _USUAL,
    cursor: Annotated[str | None, Query(max_length=_CURSOR)] = None,
) -> _Paged:
    return _Paged(limit, cursor)


Paged = Annotated[_Paged, Depends(_paged)]


def _encoded(name: str, key: Key) -> str:
    return urlsafe_b64encode(json.dumps([name, *key], ensure_ascii=False).encode()).decode()


def _decoded(cursor: str, name: str, key: tuple[type[int | str], ...]) -> Key:
    try:
        whose, *after = json.loads(urlsafe_b64decode(cursor))
    except (ValueError, TypeError, RecursionError):
        whose, after = None, []
    if whose != name or len(after) != len(key) or not all(map(_is, after, key)):
        hint = "take it from `next` of the page before, or leave it out to begin anew"
        raise UsageError("the cursor is not one of this list", hint=hint)
    return tuple(after)


def _is(value: object, kind: type[int | str]) -> bool:
    """Whether it can be part of a key: what no database could hold is refused here."""
    if isinstance(value, str):
        return kind is str and value.isprintable()
    return kind is int and type(value) is int and 0 <= value <= _LARGEST
