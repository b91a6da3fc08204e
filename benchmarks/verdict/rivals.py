# SPDX-License-Identifier: Apache-2.0
"""The ways of judging that come to mind first, on the same rollouts: each wrong in a way that shows only over many."""

from __future__ import annotations

from math import inf, nan, sqrt

import numpy as np
from scipy.special import stdtrit

from kvflags_collector.verdict.arrays import Floats, Ints
from kvflags_collector.verdict.effect import Effect
from kvflags_collector.verdict.sequential import critical_value
from kvflags_collector.verdict.simulate.plan import BLOCKS_A_DAY
from kvflags_collector.verdict.simulate.rollout import Rollout

__all__ = ["asymptotic", "failure_z", "plain_t", "span_first"]


def plain_t(effect: Effect) -> tuple[float, float]:
    """The 95 % interval of a t test with a pooled variance, for one look, used at every look."""
    degrees = effect.treated + effect.control - 2
    spread = effect.control_variance * (effect.control - 1)
    spread += (effect.treated - 1) * effect.treated_variance if effect.treated > 1 else 0.0
    reach = float(stdtrit(degrees, 0.975)) * sqrt(spread / degrees * (1 / effect.treated + 1 / effect.control))
    return effect.delta - reach, effect.delta + reach


def asymptotic(effect: Effect, alpha: float = 0.05) -> tuple[float, float]:
    """The asymptotic confidence sequence with plugged-in variances: too short while few are treated."""
    if effect.treated < 2 or not effect.treated_variance:
        return -inf, inf
    leverage = effect.se**2 - effect.variance / effect.treated
    se = sqrt(effect.treated_variance / effect.treated + leverage)
    reach = critical_value(alpha, nu=inf, tau=effect.treated_variance / se**2) * se
    return effect.delta - reach, effect.delta + reach


def _arms(rollout: Rollout, values: Floats, day: int) -> tuple[float, float]:
    """Sums over what each arm has seen since the first exposure, in blocks."""
    block = np.arange(values.shape[1])
    on = block >= rollout.exposure.since[:, None] * BLOCKS_A_DAY
    there = (block >= np.maximum(rollout.fleet.arrived, 7)[:, None] * BLOCKS_A_DAY) & (block < day * BLOCKS_A_DAY)
    return float(values[there & on].sum()), float(values[there & ~on].sum())


def failure_z(rollout: Rollout, looks: range) -> bool:
    """Whether a pooled z test of two proportions ever says p < 0.05 that the treated fail more, or less."""
    for day in looks:
        e, n = _arms(rollout, rollout.fleet.errors, day), _arms(rollout, rollout.fleet.transfers, day)
        if min(n) > 0 and sum(e) > 0:
            rate = sum(e) / sum(n)
            if abs(e[0] / n[0] - e[1] / n[1]) > 1.96 * sqrt(rate * (1 - rate) * (1 / n[0] + 1 / n[1])):
                return True
    return False


def span_first(rollout: Rollout, looks: range) -> float:
    """The first difference between spans that a Welch test calls significant, as if spans were independent; in log."""
    weights: Floats = rollout.fleet.transfers
    latency = np.repeat(rollout.fleet.latency, BLOCKS_A_DAY, axis=1)
    for day in looks:
        n = _arms(rollout, weights, day)
        if min(n) > 0:
            total = _arms(rollout, weights * latency, day)
            difference = total[0] / n[0] - total[1] / n[1]
            if abs(difference) > 1.96 * 0.8 * sqrt(1 / n[0] + 1 / n[1]):
                return difference
    return nan


def levels(rollout: Rollout, deployment: Ints, day: Ints) -> Floats:
    """What a comparison without a before has: the 3 days after alone."""
    columns = day[:, None] + np.arange(3)
    return rollout.fleet.latency[deployment[:, None], columns].mean(axis=1)
