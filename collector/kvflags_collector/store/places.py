# SPDX-License-Identifier: Apache-2.0
"""Places in a list: where a page of it begins. By the key of the item before, so that inserts move nothing about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, tuple_

__all__ = ["WHOLE", "Key", "Keyed", "Place"]

Key = tuple[int | str, ...]
# An item with the key that it stands under.
Keyed = tuple[Key, dict[str, Any]]


class Place(NamedTuple):
    """after: the key of the last item of the page before, None at the start. limit: at most so many, None for all."""

    after: Key | None = None
    limit: int | None = None

    def rising(self, query: Select[Any], *key: ColumnElement[Any]) -> Select[Any]:
        """The items behind this place, with keys that grow."""
        if self.after is not None:
            query = query.where(tuple_(*key) > self.after)
        return query.order_by(*key).limit(self.limit)

    def falling(self, query: Select[Any], *key: ColumnElement[Any]) -> Select[Any]:
        """The items behind this place, with keys that fall: the newest first."""
        if self.after is not None:
            query = query.where(tuple_(*key) < self.after)
        return query.order_by(*(one.desc() for one in key)).limit(self.limit)

    def among(self, items: Iterable[Keyed], *, falling: bool = False) -> list[Keyed]:
        """The items behind this place of a list that is put together in memory, by keys that grow, or fall."""
        after = self.after
        behind = [one for one in items if after is None or (one[0] < after if falling else one[0] > after)]
        return sorted(behind, key=lambda one: one[0], reverse=falling)[: self.limit]


WHOLE = Place()
