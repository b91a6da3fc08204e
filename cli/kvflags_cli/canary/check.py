# SPDX-License-Identifier: Apache-2.0
"""Run the prompts and say what came of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from kvflags_cli.canary.compare import Comparison, compare
from kvflags_cli.canary.completions import Engine, Failed

__all__ = ["Checked", "Outcome", "check", "outcome", "says"]


class Outcome(StrEnum):
    """Of one prompt, and of the whole. `undecided`: nothing was learned of the KV cache either way."""

    MATCH = "match"
    MISMATCH = "mismatch"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Checked:
    """One prompt. delta: the largest difference of a logprob, in nats; None where it is not a number, or unknown."""

    name: str
    outcome: Outcome
    compared: int
    delta: float | None
    says: str


def check(
    prefill: Engine, decode: Engine, prompts: Mapping[str, str], *, tokens: int, tolerance: float
) -> Iterator[Checked]:
    """Each prompt: alone on the decode engine, twice, then with the cache of the prefill engine."""
    for name, prompt in prompts.items():
        yield _one(prefill, decode, name, prompt, tokens=tokens, tolerance=tolerance)


def _one(prefill: Engine, decode: Engine, name: str, prompt: str, *, tokens: int, tolerance: float) -> Checked:
    try:
        local = decode.answer(prompt, tokens)
        again = compare(local, decode.answer(prompt, tokens), tolerance)
        if not again.same:
            why = f"by itself, the decode engine differs from its own answer by {_nats(again)}"
            return _checked(name, Outcome.UNDECIDED, again, why)
        crossed = compare(local, decode.answer(prompt, tokens, prefill.prefill(prompt)), tolerance)
    except Failed as error:
        return Checked(name, Outcome.UNDECIDED, 0, None, error.message)
    if crossed.same:
        return _checked(name, Outcome.MATCH, crossed, f"{crossed.compared} tokens agree")
    why = f"token {(crossed.at or 0) + 1} differs by {_nats(crossed)}, more than {tolerance:g}"
    return _checked(name, Outcome.MISMATCH, crossed, why)


def outcome(checked: Iterable[Checked], fetched: float | None) -> Outcome:
    """One mismatch is a mismatch; a match needs every prompt, and blocks that were fetched.

    fetched: tokens that the decode engine fetched meanwhile; None where it does not say.
    """
    found = {one.outcome for one in checked}
    if Outcome.MISMATCH in found:
        return Outcome.MISMATCH
    return Outcome.MATCH if found == {Outcome.MATCH} and fetched != 0 else Outcome.UNDECIDED


def says(result: Outcome, fetched: float | None) -> str:
    """The whole in a sentence."""
    if result is Outcome.MISMATCH:
        return "What decode engines fetch is not what prefill engines computed: do not serve with this."
    if fetched == 0:
        return "The decode engine fetched nothing, so that the transfer was not tested."
    if result is Outcome.UNDECIDED:
        return "Not every prompt could be compared."
    return "Fetched KV blocks give the logprobs of a local prefill."


def _checked(name: str, result: Outcome, found: Comparison, why: str) -> Checked:
    return Checked(name, result, found.compared, found.delta if isfinite(found.delta) else None, why)


def _nats(found: Comparison) -> str:
    return f"{found.delta:.3g}" if isfinite(found.delta) else "an unlikely token"
