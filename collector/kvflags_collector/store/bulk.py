# SPDX-License-Identifier: Apache-2.0
"""Spans as they are handed to a database: what they share told once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Bulk"]


class Bulk(NamedTuple):
    """Rows of the columns `names`, and what all of them have in other columns; what is in neither is absent."""

    rows: Sequence[tuple[Any, ...]]
    names: Sequence[str]
    constants: Mapping[str, Any]
