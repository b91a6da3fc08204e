# SPDX-License-Identifier: Apache-2.0
"""Prompts of mixed lengths, the same for every deployment: what differs between the arms must not be the traffic."""

from __future__ import annotations

import random

from kvflags_cli.demo.model import VOCABULARY

__all__ = ["prompts"]

# Tokens. The CPU's block size is 128: from less than one block to eight, so that blocks are freed in another order
# than they were taken and the pool fragments.
_SHORTEST, _LONGEST = 40, 900


def prompts(label: str, count: int, *, seed: int = 0, longest: int = _LONGEST) -> dict[str, list[int]]:
    """`count` prompts by request id: lengths log-uniform, tokens uniform, from the seed alone."""
    dice = random.Random(seed)  # noqa: S311 (traffic, not secrets)
    lengths = [round(_SHORTEST * (longest / _SHORTEST) ** dice.random()) for _ in range(count)]
    return {f"{label}-{n}": dice.choices(range(3, VOCABULARY), k=length) for n, length in enumerate(lengths)}
