# SPDX-License-Identifier: Apache-2.0
"""The error guard: a breaker without statistics, the evidence that one deployment fails more, and a fleet's log ratio.

Errors come in bursts and at rates that differ a hundredfold between deployments. So: a negative binomial with the
fleet's dispersion, a cap on what one block of six hours can add, and a threshold calibrated on controls.
"""

from __future__ import annotations

from math import ceil, log

import numpy as np
from scipy.special import gammaln

from kvflags_collector.verdict.arrays import Bools, Floats

__all__ = [
    "BASELINE_BLOCKS",
    "WATCHED_BLOCKS",
    "breaker",
    "dispersion",
    "evidence",
    "fleet_dispersion",
    "log_ratio",
    "threshold",
]

BASELINE_BLOCKS = 28
# 28 days: then a deployment has shown what it does.
WATCHED_BLOCKS = 112
_FIRES_AT = 20.0
_LEAST_PLACEBO_RUNS = 40
_MULTIPLES = np.array([1.0, 2.0, 4.0, 8.0])
# Pseudo-counts: half an error in 5,000 transfers, so that a baseline without errors is not a rate of zero.
_PRIOR_ERRORS, _PRIOR_TRANSFERS = 0.5, 5000.0
_BREAKER_ERRORS, _BREAKER_SHARE = 50, 0.01


def breaker(errors: Floats, transfers: Floats) -> Bools:
    """Whether each row has two buckets of 5 minutes in a row with 50 errors and 1 % of transfers or more.

    Shapes (n, buckets); returns (n,).
    """
    hot = (errors >= _BREAKER_ERRORS) & (errors >= _BREAKER_SHARE * transfers)
    return np.asarray(np.any(hot[:, 1:] & hot[:, :-1], axis=1))


def dispersion(errors: Floats, transfers: Floats) -> Floats:
    """By how much counts vary beyond Poisson, for each row of blocks; NaN with fewer than 5 errors."""
    total = errors.sum(axis=1)
    enough = (total >= 5) & (transfers.sum(axis=1) > 0)
    mean = transfers * (np.where(enough, total, 1.0) / np.maximum(transfers.sum(axis=1), 1.0))[:, None]
    excess = np.sum((errors - mean) ** 2 - mean, axis=1) / np.where(enough, np.sum(mean**2, axis=1), 1.0)
    return np.asarray(np.where(enough, excess, np.nan))


def fleet_dispersion(errors: Floats, transfers: Floats) -> float:
    """The 75th percentile over rows; 1 where too little failed to tell, which is what AR(1) frailty came to."""
    each = dispersion(errors, transfers)
    known = each[np.isfinite(each)]
    return max(0.0, float(np.percentile(known, 75))) if len(known) else 1.0


def evidence(before: tuple[Floats, Floats], after: tuple[Floats, Floats], kappa: float) -> Floats:
    """(n, blocks): how likely more failures became, against the row's own baseline; at least 20 is much.

    before, after: (errors, transfers) in blocks of 6 hours, shapes (n, 28) and (n, blocks). A block without transfers
    adds nothing. One block at most doubles the evidence, so that a burst is no verdict.
    """
    a, b = (np.repeat(value[:, None], len(_MULTIPLES), axis=1) for value in _baseline(*before, kappa))
    log_e = np.zeros((len(a), len(_MULTIPLES) - 1))
    result = np.empty(after[0].shape)
    for block in range(after[0].shape[1]):
        e, n = after[0][:, block, None], after[1][:, block, None]
        mean = _MULTIPLES * n * a / b
        size = 1 / (kappa + 1 / a)
        likely = _log_pmf(e, np.maximum(mean, 1e-300), size)
        a = a + e / (1 + kappa * mean)
        b = b + _MULTIPLES * n / (1 + kappa * mean)
        log_e += np.where(n > 0, np.minimum(likely[:, 1:] - likely[:, :1], log(2)), 0.0)
        result[:, block] = np.exp(np.minimum(log_e, 700.0)).mean(axis=1)
    return result


def threshold(placebo_maxima: Floats) -> float:
    """At which evidence the guard fires: above 20, and above what 95 % of the controls' runs reached by themselves."""
    n = len(placebo_maxima)
    if n < _LEAST_PLACEBO_RUNS:
        return _FIRES_AT
    rank = min(n, ceil(0.95 * (n + 1)))
    return max(_FIRES_AT, float(np.sort(placebo_maxima)[rank - 1]))


def log_ratio(before: tuple[Floats, Floats], after: tuple[Floats, Floats]) -> Floats:
    """(n,): the change of the failure rate, bursts cut off, within a factor of e^3. Shapes as for `evidence`."""
    total0, total1 = (np.maximum(transfers.sum(axis=1), 1.0) for _, transfers in (before, after))
    rate = (before[0].sum(axis=1) + 0.5) / total0
    cut0, cut1 = (np.minimum(e, 8 * rate[:, None] * n + 3).sum(axis=1) for e, n in (before, after))
    return np.asarray(np.clip(np.log((cut1 + 0.5) / total1) - np.log((cut0 + 0.5) / total0), -3.0, 3.0))


def _baseline(errors: Floats, transfers: Floats, kappa: float) -> tuple[Floats, Floats]:
    """(n,) each: the errors and transfers that the baseline is worth, blocks weighed by how much they tell."""
    a = errors.sum(axis=1) + _PRIOR_ERRORS
    b = transfers.sum(axis=1) + _PRIOR_TRANSFERS
    for _ in range(3):
        weight = 1 / (1 + kappa * transfers * (a / b)[:, None])
        a = _PRIOR_ERRORS + np.sum(weight * errors, axis=1)
        b = _PRIOR_TRANSFERS + np.sum(weight * transfers, axis=1)
    return a, b


def _log_pmf(e: Floats, mean: Floats, size: Floats) -> Floats:
    """ln NB(e; mean, size); broadcasts."""
    total = size + mean
    return np.asarray(
        gammaln(e + size) - gammaln(size) - gammaln(e + 1) + size * np.log(size / total) + e * np.log(mean / total)
    )
