# SPDX-License-Identifier: Apache-2.0
"""What an operator watches of a rollout: part of its page's document, and when two of them say the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["overview", "same"]

_PARTS = (
    "generated_at",
    "fresh_as_of",
    "flag",
    "banner",
    "ramp",
    "graduation",
    "realised",
    "trusted",
    "health",
    "outcomes",
    "replacing",
    "alarms",
)


def overview(page: Mapping[str, Any]) -> dict[str, Any]:
    """Banner, ramp, health, guardrails and alarms of `kvflags.page.rollout/1`."""
    return {name: page[name] for name in _PARTS}


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether nothing changed but times of reading, and counts that grow with each."""
    return _lasting(one) == _lasting(other)


def _lasting(document: Mapping[str, Any]) -> dict[str, Any]:
    rest = {name: document[name] for name in _PARTS if name not in {"generated_at", "fresh_as_of", "ramp", "health"}}
    return rest | {"ramp": _ramp(document["ramp"]), "health": [one["standing"] for one in document["health"]]}


def _ramp(ramp: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Without how much of the step's time is over."""
    if ramp is None:
        return None
    return {**ramp, "waiting_for": [one for one in ramp["waiting_for"] if not one.startswith("time:")]}
