# SPDX-License-Identifier: Apache-2.0
"""What a fleet would measure: baselines, drift, autocorrelated noise, reconfigurations, bursts of failures.

Some deployments are there on day 0, the rest arrive evenly. Log time to first token: AR(1) noise of 0.6 with an SD
around 0.10 that differs between deployments, a drift common to all, another for each stratum, and jumps of SD 0.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p

import numpy as np

from kvflags_collector.verdict.arrays import Floats, Ints
from kvflags_collector.verdict.simulate.plan import BLOCKS_A_DAY, STRATA, Plan

__all__ = ["Fleet", "draw"]

# Inter-token latency and throughput vary a tenth as much: they average over every token of an hour.
_STEADY = 0.1
_BURST_RATE, _BURST = 0.003, 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """n deployments without any treatment; `effect` is what it would add to the log of time to first token.

    arrived: day; lot: uniform, treated once the share exceeds it; latency, inter_token, output: (n, days) in log;
    errors at ratio 1, transfers: (n, blocks); excess: further errors of a treated deployment, (n, blocks).
    """

    arrived: Ints
    stratum: Ints
    lot: Floats
    effect: Floats
    inter_token_effect: float
    latency: Floats
    inter_token: Floats
    output: Floats
    errors: Floats
    excess: Floats
    transfers: Floats
    reports: Floats


def draw(plan: Plan, rng: np.random.Generator) -> Fleet:
    """One fleet. The same plan and generator give the same fleet."""
    n, days = plan.deployments, plan.end
    stratum = rng.choice(len(STRATA), n, p=[share for _, share in STRATA])
    arrived = np.where(np.arange(n) < int(n * plan.there), 0, rng.integers(0, max(1, days - 14), n))
    volume = 50_000 * rng.lognormal(0, 1.2, n)
    scale = 0.10 * rng.lognormal(0, 0.4, n)
    common = np.cumsum(rng.normal(0, 0.02, days)) + np.cumsum(rng.normal(0, 0.01, (len(STRATA), days)), axis=1)[stratum]
    shifts = np.cumsum((rng.random((n, days)) < plan.shift_rate) * rng.normal(0, 0.3, (n, days)), axis=1)
    sampling = rng.normal(0, 1, (n, days)) * (0.8 / np.sqrt(volume))[:, None]
    level = rng.normal(0, 0.9, n) + rng.normal(0, 0.4, len(STRATA))[stratum]
    latency = level[:, None] + common + shifts + sampling + scale[:, None] * _ar(rng, n, days, 0.6)
    errors, excess, transfers = _failures(plan, rng, volume)
    return Fleet(
        arrived=arrived,
        stratum=stratum,
        lot=_lots(plan, rng),
        effect=np.asarray(plan.log_effects)[stratum] + rng.normal(0, 1, n) * plan.heterogeneity,
        inter_token_effect=log1p(plan.inter_token),
        latency=latency,
        inter_token=_STEADY * (common + scale[:, None] * _ar(rng, n, days, 0.6)),
        output=_STEADY * (common + scale[:, None] * _ar(rng, n, days, 0.6)),
        errors=errors,
        excess=excess,
        transfers=transfers,
        reports=rng.random(n),
    )


def _lots(plan: Plan, rng: np.random.Generator) -> Floats:
    """By a count the places in the draw, evenly spread: a share of them is then a number of deployments."""
    drawn = rng.random(plan.deployments)
    return (drawn.argsort().argsort() + 0.5) / plan.deployments if plan.counted else drawn


def _failures(plan: Plan, rng: np.random.Generator, volume: Floats) -> tuple[Floats, Floats, Floats]:
    n, blocks = plan.deployments, plan.end * BLOCKS_A_DAY
    transfers = rng.poisson((volume / BLOCKS_A_DAY)[:, None], (n, blocks)).astype(np.float64)
    rate = 1e-4 * rng.lognormal(0, 1.0, n)[:, None]
    frailty = np.exp(0.8 * _ar(rng, n, blocks, plan.error_ar) - 0.32)
    starts = rng.random((n, blocks)) < _BURST_RATE
    burst = starts.copy()
    for later in range(1, plan.burst_blocks):
        burst[:, later:] |= starts[:, :-later]
    mean = transfers * np.minimum(rate * frailty * np.where(burst, _BURST, 1.0), 0.5)
    errors = rng.poisson(mean).astype(np.float64)
    more = rng.poisson(mean * max(0.0, plan.error_ratio - 1)).astype(np.float64)
    fewer = errors - rng.binomial(errors.astype(np.int64), min(1.0, plan.error_ratio))
    return errors, more - fewer, transfers


def _ar(rng: np.random.Generator, n: int, length: int, coefficient: float) -> Floats:
    """(n, length): stationary AR(1) with variance 1."""
    steps = rng.normal(0, 1, (length, n))
    steps[1:] *= np.sqrt(1 - coefficient**2)
    for index in range(1, length):
        steps[index] += coefficient * steps[index - 1]
    return steps.T
