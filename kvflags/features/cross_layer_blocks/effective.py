# SPDX-License-Identifier: Apache-2.0
"""Did the layout take hold? Read from what NIXL registered, the one signal that is the same in every release."""

from __future__ import annotations

__all__ = ["effective"]


def effective(regions: int, layers: int) -> bool:
    """Whether whole rows were registered: one region for all layers, where the default layout has one per layer.

    A model of a single layer has one region either way; it gains nothing, so it does not count as effective.
    """
    return regions == 1 and layers > 1
