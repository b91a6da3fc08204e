# SPDX-License-Identifier: Apache-2.0
"""Whether two answers to one prompt came from the same KV cache. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

__all__ = ["Answer", "Comparison", "compare"]


@dataclass(frozen=True, slots=True)
class Answer:
    """Greedily chosen tokens, in the order of generation. top: at each, the likeliest ones with their logprobs in
    nats, the chosen one among them.
    """

    tokens: Sequence[str]
    top: Sequence[Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """compared: tokens looked at. delta: the largest difference of a logprob among them, in nats, or how clear the
    choice was where the answers chose differently. at: the first token (from 0) where it is above the tolerance."""

    compared: int
    delta: float
    at: int | None

    @property
    def same(self) -> bool:
        return self.at is None


def compare(one: Answer, other: Answer, tolerance: float) -> Comparison:
    """Token by token, until the answers choose differently: from there on they continue different texts.

    A different choice is a difference only where it was clear: between two tokens that are nearly as likely, the last
    digits of a kernel decide, and those depend on what else is in the batch.
    """
    delta, compared = 0.0, 0
    for here, (mine, theirs, my_top, their_top) in enumerate(
        zip(one.tokens, other.tokens, one.top, other.top, strict=False)
    ):
        compared = here + 1
        found = abs(my_top[mine] - their_top.get(mine, -inf))
        if mine != theirs:
            found = max(_clear(my_top, mine, theirs), _clear(their_top, theirs, mine))
        delta = max(delta, found)
        if found > tolerance:
            return Comparison(compared, delta, here)
        if mine != theirs:
            return Comparison(compared, delta, None)
    if len(one.tokens) != len(other.tokens):
        return Comparison(compared, inf, compared)
    return Comparison(compared, delta, None)


def _clear(top: Mapping[str, float], chosen: str, instead: str) -> float:
    """By how much the chosen token was likelier than the other one."""
    return top[chosen] - top.get(instead, -inf)
