# SPDX-License-Identifier: Apache-2.0
"""The specification's worked cases, each cross-checked there by a second route (integration, another library)."""

from __future__ import annotations

from math import inf, log, sqrt

import numpy as np
import pytest

from kvflags_collector.verdict import errors, mismatch
from kvflags_collector.verdict.effect import Design, Effect
from kvflags_collector.verdict.events import change, fixed_mix_change
from kvflags_collector.verdict.forecast import more_treated
from kvflags_collector.verdict.sequential import critical_value, e_value

# Printed values have 6 to 9 digits: 1e-6 relative where there are as many, their last digit where there are fewer.
CLOSE = 1e-6


def close(value, relative=CLOSE):
    return pytest.approx(value, rel=relative)


def test_the_pooled_comparison():
    treated = np.array([-0.31, -0.12, -0.25, -0.08, -0.40, -0.19])
    control = np.array([0.05, -0.07, 0.02, 0.11, -0.04, 0, -0.09, 0.06])
    delta = treated.mean() - control.mean()
    pooled = (treated.var() * 6 + control.var() * 8) / 12
    tau = 6 * 8 / 14
    se = sqrt(pooled / tau)
    assert (delta, se, tau) == (close(-0.23), close(0.05045797), close(3.42857143))
    assert e_value(delta / se, nu=12, tau=tau) == close(38.1825422)
    c = critical_value(0.05, nu=12, tau=tau)
    assert (c, delta - c * se, delta + c * se) == (close(3.94868745), close(-0.429242761), close(-0.030757239))


@pytest.mark.parametrize(
    ("nu", "tau", "c"),
    [
        (2, 1, inf),
        (8, 4, 4.45600777),
        (10, 5, 3.94317125),
        (30, 12.5, 3.25919278),
        (200, 50, 3.21474916),
        (inf, 1, 3.6563949),
        (inf, 4, 3.0823900),
        (inf, 5, 3.0561199),
        (inf, 12.5, 3.0465861),
        (inf, 50, 3.1814707),
    ],
)
def test_the_critical_value(nu, tau, c):
    assert critical_value(0.05, nu=nu, tau=tau) == close(c)


def test_the_interval_is_where_the_evidence_crosses_its_level():
    c = critical_value(0.05, nu=10, tau=5)
    assert e_value(c, nu=10, tau=5) == close(20, 1e-9)


def test_the_asymptotic_sequence_of_other_tools():
    level = -2 * log(0.05)
    rho = sqrt((level + log(level + 1)) / 5000)
    assert rho == close(0.0398400668)
    c = critical_value(0.05, nu=inf, tau=400, phi=1 / rho**2)
    assert c * 1.3 / sqrt(400) == close(0.265581175)


# cohort, stratum, treated, value
EVENTS = [
    (0, 0, 0, 0.02),
    (0, 0, 0, -0.05),
    (0, 0, 0, 0.04),
    (0, 1, 0, 0.10),
    (0, 1, 0, 0.06),
    (0, 0, 1, -0.20),
    (0, 1, 1, -0.02),
    (1, 0, 0, -0.08),
    (1, 0, 0, -0.01),
    (1, 1, 0, 0.03),
    (1, 1, 0, -0.02),
    (1, 0, 1, -0.33),
    (1, 0, 1, -0.15),
    (1, 1, 1, -0.21),
    (1, 1, 1, -0.09),
]


def _imputed() -> Effect:
    cohort, stratum, treated, value = (np.array(column) for column in zip(*EVENTS, strict=True))
    found = Design(cohort, stratum, treated == 1).effect(value)
    assert found is not None
    return found


def test_the_imputation():
    found = _imputed()
    each = [-0.208181818, -0.092727273, -0.277727273, -0.097727273, -0.222272727, -0.102272727]
    assert found.each.tolist() == [close(value) for value in each]
    assert (found.delta, found.se) == (close(-0.16681818), close(0.03214486))
    # As printed: five and six digits.
    assert (found.control_variance, found.treated_variance) == (close(0.00155909), close(0.00630322))
    assert found.variance == close(0.00494776)
    assert (found.nu, found.tau) == (close(10.2268502), close(4.78834169))
    interval = found.interval(0.05)
    assert (interval.low, interval.high) == (close(-0.29339220), close(-0.04024417))


def test_the_order_of_events_changes_nothing():
    cohort, stratum, treated, value = (np.array(column) for column in zip(*EVENTS, strict=True))
    order = np.random.default_rng(1).permutation(len(EVENTS))
    found = Design(cohort[order], stratum[order], treated[order] == 1).effect(value[order])
    assert found.delta == close(_imputed().delta, 1e-12)
    assert found.se == close(_imputed().se, 1e-12)


def test_the_forecast():
    found = _imputed()
    assert (more_treated(found, 0.0, 0.05), more_treated(found, -0.05, 0.05)) == (0, 3)
    other = Effect(
        delta=-0.08,
        se=0.03,
        nu=20,
        tau=9,
        treated=12,
        control=0,
        control_variance=0,
        treated_variance=0,
        variance=0,
        each=np.zeros(0),
        rows=np.zeros(0, dtype=np.int64),
    )
    assert more_treated(other, 0.0, 0.05) == 16
    assert more_treated(other, -0.08, 0.05) is None


def test_the_sample_ratio():
    assert mismatch.e_value(np.full(60, 0.5), np.arange(60) < 40) == close(6.67675860)
    ramp = ((0.01, 100, 1), (0.04 / 0.99, 99, 3), (0.20 / 0.95, 96, 10), (0.25 / 0.75, 86, 14))
    probability = np.concatenate([np.full(number, p) for p, number, _ in ramp])
    treated = np.concatenate([np.arange(number) < got for _, number, got in ramp])
    assert mismatch.e_value(probability, treated) == close(1904.70117)
    assert mismatch.e_value(np.array([0.0, 1.0]), np.array([True, True])) == 1.0


def test_the_failures_of_one_deployment():
    before = np.array([[3, 0, 5, 2, 1, 0, 4, 9, 1, 0, 2, 3.0]])
    after = np.array([[9, 14, 6, 22, 11, 18, 30, 12.0]])
    n = 12_000.0
    assert errors.dispersion(before, np.full_like(before, n)).tolist() == [close(0.6)]
    found = errors.evidence((before, np.full_like(before, n)), (after, np.full_like(after, n)), 1.5)
    expected = [1.93902, 3.87804, 3.89085, 7.78170, 10.48944, 19.81443, 39.62885, 47.51811]
    assert found[0].tolist() == [pytest.approx(value, abs=5.1e-6) for value in expected]
    assert int(np.argmax(found[0] > 20)) + 1 == 7


def test_a_changed_mix_is_no_change():
    """Shares of 80/20 become 60/40 while neither class gets slower: pooled that looks like +49 %."""
    before, after = np.array([[[1.0], [3.0]]]), np.array([[[1.0], [3.0]]])
    assert fixed_mix_change(before, after, np.array([[0.8, 0.2]])).tolist() == [0.0]
    pooled_before, pooled_after = np.array([[0.8 * 1 + 0.2 * 3]]), np.array([[0.6 * 1 + 0.4 * 3]])
    assert change(pooled_before, pooled_after).tolist() == [close(0.4)]
