# SPDX-License-Identifier: Apache-2.0
"""One effect over several organisations, each with fleets of its own: random effects, first over an organisation's
fleets, then over organisations.

An organisation weighs as one, however many fleets it brings. The variance between organisations is DerSimonian-Laird's,
the standard error Hartung-Knapp-Sidik-Jonkman's, never below the plain one: a handful that agree by chance would be
believed otherwise. The bound is the one that stays valid at every look, with an organisation as the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt

import numpy as np

from kvflags_collector.verdict.arrays import Floats
from kvflags_collector.verdict.effect import Interval
from kvflags_collector.verdict.sequential import critical_value
from kvflags_collector.verdict.spread import spread

__all__ = ["LARGEST_SHARE", "LEAST_ORGANISATIONS", "Across", "Organisation", "across"]

# Below five the bound is of no use (8.5 standard errors), and one organisation could be made out in what is printed.
LEAST_ORGANISATIONS = 5
LARGEST_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Organisation:
    """effects, variances: (fleets,) log ratios and their squared standard errors, all above 0."""

    name: str
    effects: Floats
    variances: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Across:
    """delta, se: log ratio over organisations. tau2: the variance of true effects between them.

    largest: the name of the one that weighs most (the first by name among equals), share: its part of the weight.
    without: the same without it, None where nobody else is left.
    """

    organisations: int
    fleets: int
    delta: float
    se: float
    tau2: float
    interval: Interval
    largest: str
    share: float
    without: Across | None

    @property
    def rules_met(self) -> bool:
        """Whether it may conclude anything good."""
        return self.organisations >= LEAST_ORGANISATIONS and self.share <= LARGEST_SHARE


def across(organisations: Sequence[Organisation], alpha: float = 0.05) -> Across | None:
    """Over all that have a fleet; None without any. The order makes no difference, down to the last bit."""
    given = sorted((one for one in organisations if len(one.effects)), key=lambda one: one.name)
    found = _pooled(given, alpha)
    if found is None or len(given) == 1:
        return found
    rest = _pooled([one for one in given if one.name != found.largest], alpha)
    return Across(**{name: getattr(found, name) for name in Across.__slots__ if name != "without"}, without=rest)


def _pooled(given: Sequence[Organisation], alpha: float) -> Across | None:
    if not given:
        return None
    own = [_of_fleets(one) for one in given]
    effects, variances = (np.array(column) for column in zip(*own, strict=True))
    over = spread(effects, variances)
    weights = 1 / (variances + over.tau2)
    total = float(weights.sum())
    heaviest = int(np.argmax(weights))
    se = _se(effects, weights, over.mean)
    return Across(
        organisations=len(given),
        fleets=sum(len(one.effects) for one in given),
        delta=over.mean,
        se=se,
        tau2=over.tau2,
        interval=_interval(over.mean, se, len(given), total**2 / float(weights @ weights), alpha),
        largest=given[heaviest].name,
        share=float(weights[heaviest]) / total,
        without=None,
    )


def _of_fleets(one: Organisation) -> tuple[float, float]:
    """(effect, variance) of an organisation; of its fleets in the order of their effects, so that theirs is none."""
    order = np.lexsort((one.variances, one.effects))
    own = spread(one.effects[order], one.variances[order])
    return own.mean, own.se**2


def _se(effects: Floats, weights: Floats, mean: float) -> float:
    """NaN for one organisation, whose distance from others nobody knows."""
    if len(effects) < 2:
        return nan
    total = float(weights.sum())
    scatter = float(weights @ (effects - mean) ** 2) / (len(effects) - 1)
    return sqrt(max(1.0, scatter) / total)


def _interval(delta: float, se: float, organisations: int, information: float, alpha: float) -> Interval:
    if organisations < 2:
        return Interval(-inf, inf)
    reach = critical_value(alpha, nu=organisations - 1, tau=information) * se
    return Interval(delta - reach, delta + reach)
