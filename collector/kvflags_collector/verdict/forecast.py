# SPDX-License-Identifier: Apache-2.0
"""How many more treated deployments would settle the question, if the effect is what it looks like."""

from __future__ import annotations

from bisect import bisect_left

from kvflags_collector.verdict.effect import Effect
from kvflags_collector.verdict.sequential import critical_value

__all__ = ["MOST", "more_treated"]

# Beyond that the answer is "not with this fleet", whatever the arithmetic says.
MOST = 300
# The normal quantile of 80 %: with so many more, four of five rollouts are settled.
_POWER = 0.84


def more_treated(effect: Effect, threshold: float, alpha: float) -> int | None:
    """The least number after which the interval is expected to lie beyond `threshold` (log ratio); None above 300.

    Either side: also that the threshold is not reached would then be known. Assumes that controls grow alike. The
    answer is wide: for an effect of -8 % the middle half of forecasts reaches from 35 to 165.
    """
    distance = abs(effect.delta - threshold)
    # More deployments make the interval shorter, so the first that will do can be searched for by halving.
    found = bisect_left(range(MOST + 1), -distance, key=lambda more: -_reach(effect, more, alpha))
    return found if found <= MOST else None


def _reach(effect: Effect, more: int, alpha: float) -> float:
    growth = (effect.treated + more) / effect.treated
    c = critical_value(alpha, nu=effect.nu * growth, tau=effect.tau * growth)
    return float((c + _POWER) * effect.se / growth**0.5)
