# SPDX-License-Identifier: Apache-2.0
"""Views of what the collector has heard of: deployments, and engines with the layout they really have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import RenderableType

__all__ = ["deployments", "engines"]

Json = dict[str, Any]


def deployments(items: list[Json]) -> Iterable[RenderableType]:
    raise NotImplementedError


def engines(items: list[Json]) -> Iterable[RenderableType]:
    raise NotImplementedError
