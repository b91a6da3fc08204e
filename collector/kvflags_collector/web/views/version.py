# SPDX-License-Identifier: Apache-2.0
"""The version of a page: the same for documents that say the same, whenever they were made and whoever reads them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["version", "without"]


def version(*said: Any) -> str:  # noqa: ANN401 - any JSON values
    """32 hexadecimal digits of everything in `said`."""
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:32]


def without(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """All of a document but some of its fields."""
    return {name: value for name, value in document.items() if name not in names}
