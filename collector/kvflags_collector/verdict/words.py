# SPDX-License-Identifier: Apache-2.0
"""How the verdict speaks: findings with a stable code, and numbers as people write them."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isfinite

from kvflags_collector.verdict.effect import Interval
from kvflags_collector.verdict.outcomes import Outcome

__all__ = ["Finding", "count", "percent", "ranged"]


@dataclass(frozen=True, slots=True)
class Finding:
    """reason: a stable code. says: one sentence. next: what to do about it, or what is waited for."""

    reason: str
    says: str
    next: str


def count(number: int, what: str) -> str:
    """`1 deployment`, `2 deployments`."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def percent(log_ratio: float) -> str:
    """`-19%`; with a decimal below ten, so that a limit of 3 % and what it is held against can be told apart."""
    if not isfinite(log_ratio):
        return "unbounded"
    change = exp(min(log_ratio, 50.0)) - 1
    return f"{change:+.1%}" if abs(change) < 0.1 else f"{change:+.0%}"


def ranged(outcome: Outcome, delta: float, interval: Interval) -> str:
    """`-19% [-27%, -10%]`; rates of failures as factors: `x0.9 [x0.5, x1.8]`."""
    if outcome is Outcome.FAILED_TRANSFERS:
        x, low, high = (f"x{exp(min(value, 50.0)):.2g}" for value in (delta, interval.low, interval.high))
        return f"{x} [{low}, {high}]"
    return f"{percent(delta)} [{percent(interval.low)}, {percent(interval.high)}]"
