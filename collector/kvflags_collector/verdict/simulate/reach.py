# SPDX-License-Identifier: Apache-2.0
"""What a fleet can come to before anything is treated in it: rollouts of such a fleet, under assumed effects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvflags.flags import BUCKETS, Step, default_steps
from kvflags_collector.verdict.simulate.plan import BASELINE_DAYS, Plan
from kvflags_collector.verdict.simulate.summary import run, summarise

__all__ = ["ASSUMED", "reach"]

# (words, change of time to first token, factor on failed transfers): the three answers that an operator waits for.
ASSUMED = (("a fifth faster", -0.2, 1.0), ("no different", 0.0, 1.0), ("five times the failures", 0.0, 5.0))
# Effects differ between deployments, as far as is known by about so much (SD in log).
_HETEROGENEITY = 0.1
# Enough to tell "nearly always" from "seldom", and done within a second or two.
_ROLLOUTS = 16
# A larger fleet is faster still, and takes longer to simulate.
_LARGEST = 200


def reach(deployments: int) -> Iterator[dict[str, Any]]:
    """For each assumption: `{assumed, effect, error_ratio, rollouts, verdicts}`, as `summarise` has them.

    All deployments are there and observed, and the default ramp of their number is gone through without a stop. The
    same number gives the same answer.
    """
    size = min(deployments, _LARGEST)
    ramp = _days(default_steps(size), size)
    for words, effect, error_ratio in ASSUMED:
        plan = Plan(
            deployments=size,
            effect=effect,
            error_ratio=error_ratio,
            heterogeneity=_HETEROGENEITY if effect else 0.0,
            ramp=ramp,
            there=1.0,
            counted=True,
        )
        verdicts = summarise(list(run(plan, _ROLLOUTS, 0)))
        yield {
            "assumed": words,
            "effect": effect,
            "error_ratio": error_ratio,
            "rollouts": _ROLLOUTS,
            "verdicts": [row for row in verdicts if row["rollouts"]],
        }


def _days(steps: Sequence[Step], size: int) -> tuple[tuple[int, float], ...]:
    """(day, share treated from then on) of each step."""
    days, day = [], float(BASELINE_DAYS)
    for step in steps:
        share = step.target.share / BUCKETS if step.target.share is not None else (step.target.count or 0) / size
        days.append((round(day), share))
        day += step.hold_s / 86_400
    return tuple(days)
