# SPDX-License-Identifier: Apache-2.0
"""Views of tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import RenderableType

from kvflags_cli.render.numbers import ABSENT
from kvflags_cli.render.tables import pairs, table

__all__ = ["token", "tokens"]

Json = dict[str, Any]

_FIELDS = ("token", "id", "name", "scope", "state", "author", "created_at", "expires_at", "revoked_at", "revoked_by")


def token(one: Json) -> Iterable[RenderableType]:
    """One token; its secret only in the answer that made it."""
    return [pairs([(field, one[field]) for field in _FIELDS if one.get(field)])]


def tokens(items: list[Json]) -> Iterable[RenderableType]:
    columns = ("ID", "~NAME", "SCOPE", "STATE", "~CREATED", "~EXPIRES", "~AUTHOR")
    shown = ("id", "name", "scope", "state", "created_at", "expires_at", "author")
    rows = ([item[field] or ABSENT for field in shown] for item in items)
    return [table(columns, rows) if items else "None. `kvflags tokens create` makes one."]
