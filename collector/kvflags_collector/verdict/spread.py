# SPDX-License-Identifier: Apache-2.0
"""How much the effect differs between deployments: random effects (DerSimonian-Laird), for display."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan, sqrt

import numpy as np
from scipy.special import stdtrit

from kvflags_collector.verdict.arrays import Floats
from kvflags_collector.verdict.effect import Interval

__all__ = ["Spread", "spread"]


@dataclass(frozen=True, slots=True)
class Spread:
    """mean, tau2: of the effect over deployments; se: of the mean; n: how many it rests on."""

    mean: float
    tau2: float
    se: float
    n: int

    def shrunk(self, values: Floats, variances: Floats) -> Floats:
        """Each value, drawn to the mean by as much as it is noise."""
        total = self.tau2 + variances
        return np.where(total > 0, (self.tau2 * values + variances * self.mean) / np.where(total > 0, total, 1), values)

    def next(self, confidence: float = 0.95) -> Interval:
        """Where the effect on one more deployment is to be expected."""
        if self.n < 3:
            return Interval(-np.inf, np.inf)
        reach = float(stdtrit(self.n - 2, (1 + confidence) / 2)) * sqrt(self.tau2 + self.se**2)
        return Interval(self.mean - reach, self.mean + reach)


def spread(values: Floats, variances: Floats) -> Spread:
    """Of effects with known variances, all above 0."""
    if len(values) == 0:
        return Spread(nan, nan, nan, 0)
    weights = 1 / variances
    fixed = float(weights @ values / weights.sum())
    q = float(weights @ (values - fixed) ** 2)
    scale = float(weights.sum() - (weights @ weights) / weights.sum())
    tau2 = max(0.0, (q - (len(values) - 1)) / scale) if scale > 0 else 0.0
    weights = 1 / (variances + tau2)
    return Spread(float(weights @ values / weights.sum()), tau2, float(weights.sum() ** -0.5), len(values))
