# SPDX-License-Identifier: Apache-2.0
"""What a feature is to the rest: a name, a gate, the facts both roles must share, how to ask for it, how to see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kvflags.flags import Facts, Refusal, Rule, refusals

__all__ = ["Feature"]


@dataclass(frozen=True, slots=True, eq=False)
class Feature:
    """One switchable behaviour.

    name: as it stands in flags and on the wire. rules: the gate, evaluated on engine and collector alike. must_match:
    facts that the prefill and the decode engines of a deployment must have in common. layout: the KV-cache layout to
    ask for, or None where none would be effective. effective: (registered regions, layers) -> whether whole rows were
    registered. backends: the names an operator may give, with those that the rules refuse. way_back: how to keep it off
    without kvflags, in sentences. patch: (proven strata, command of the report) -> the change to vLLM that makes it the
    default there, as a unified diff.
    """

    name: str
    rules: tuple[Rule, ...]
    must_match: tuple[str, ...]
    layout: Callable[[Facts], str | None]
    effective: Callable[[int, int], bool]
    backends: frozenset[str]
    way_back: tuple[str, ...]
    patch: Callable[[Iterable[Mapping[str, Any]], str], str]

    def refusals(self, facts: Facts) -> tuple[Refusal, ...]:
        """Every rule of the gate that refuses these facts, in the order of the table; empty means eligible."""
        return _refusals(self, facts)


# The engines of a fleet are of a few kinds, and a report asks about each of its thousands: 60 µs each time.
@lru_cache(maxsize=1024)
def _refusals(feature: Feature, facts: Facts) -> tuple[Refusal, ...]:
    return refusals(feature.rules, facts)
