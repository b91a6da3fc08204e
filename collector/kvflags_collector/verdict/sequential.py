# SPDX-License-Identifier: Apache-2.0
"""The bound that stays valid however often somebody looks: the anytime-valid t.

A Gaussian mixture over the effect in units of the residual's SD (prior variance `phi`), and the right-Haar prior over
that SD, give an e-process for the Gaussian linear model in closed form. With infinite degrees of freedom it becomes the
asymptotic confidence sequence, which the benchmark shows to be wrong where effects differ between deployments.
"""

from __future__ import annotations

from math import exp, inf, isinf, log, log1p, sqrt

__all__ = ["critical_value", "e_value"]


def critical_value(alpha: float, *, nu: float, tau: float, phi: float = 1.0) -> float:
    """How many standard errors the interval reaches to each side; infinite where the data cannot say yet.

    nu: degrees of freedom. tau: information, the residual's variance over that of the estimate.
    """
    r = phi / (phi + tau)
    evidence = -2 * log(alpha * sqrt(r))
    if isinf(nu):
        return sqrt(evidence * (tau + phi) / tau)
    # In logarithms: with a few degrees of freedom and a small alpha the power itself would overflow.
    log_k = evidence / (nu + 1)
    if log_k + log(r) >= 0:
        return inf
    k = exp(log_k)
    return sqrt(nu * (k - 1) / (1 - k * r))


def e_value(t: float, *, nu: float, tau: float, phi: float = 1.0) -> float:
    """The evidence against an effect that is `t` standard errors from the estimate; at 1/alpha it is excluded."""
    r = phi / (phi + tau)
    return exp(0.5 * log(r) + (nu + 1) / 2 * (log1p(t * t / nu) - log1p(r * t * t / nu)))
