# SPDX-License-Identifier: Apache-2.0
"""What a feature is to the rest: a name, a gate, the facts both roles must share, how to ask for it, how to see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvflags.flags import Facts, Rule

__all__ = ["Feature"]


@dataclass(frozen=True, slots=True)
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
