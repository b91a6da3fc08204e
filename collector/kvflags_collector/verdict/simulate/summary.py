# SPDX-License-Identifier: Apache-2.0
"""Many simulated rollouts: how many ended in each verdict, why, and when."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median
from typing import Any

from kvflags_collector.verdict.decide import VerdictState
from kvflags_collector.verdict.simulate.plan import Plan
from kvflags_collector.verdict.simulate.rollout import Ended, simulate

__all__ = ["run", "summarise"]

# Rollouts handed to a process at a time: about a second's work.
_CHUNK = 16


def run(plan: Plan, rollouts: int, seed: int) -> Iterator[Ended]:
    """Their ends in order, on all processors. The same arguments give the same ends on any number of them."""
    one = partial(simulate, plan, seed)
    if rollouts <= _CHUNK:
        yield from map(one, range(rollouts))
        return
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn")) as pool:
        yield from pool.map(one, range(rollouts), chunksize=_CHUNK)


def summarise(ends: Sequence[Ended]) -> list[dict[str, Any]]:
    """A row for each verdict: how many, their share, the median day since the first exposure, and each reason."""
    rows = []
    for state in VerdictState:
        own = [end for end in ends if end.state is state]
        reasons = sorted({end.reason for end in own})
        rows.append(
            {
                "state": state.value,
                "rollouts": len(own),
                "share": len(own) / len(ends) if ends else 0.0,
                "median_day": median(end.day for end in own) if own else None,
                "reasons": {reason: sum(end.reason == reason for end in own) for reason in reasons},
            }
        )
    return rows
