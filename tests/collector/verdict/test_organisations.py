# SPDX-License-Identifier: Apache-2.0
"""The effect over organisations, and the verdict on it.

Worked cases: computed a second time with exact fractions, from the formulas and not from this code.
"""

from __future__ import annotations

from math import inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvflags_collector.verdict.field import Measured, estimate, field_verdict
from kvflags_collector.verdict.organisations import Organisation, across
from kvflags_collector.verdict.outcomes import Outcome

TTFT, ITL = Outcome.TIME_TO_FIRST_TOKEN, Outcome.INTER_TOKEN_LATENCY
_GUARDS = (ITL, Outcome.OUTPUT_TOKENS, Outcome.FAILED_TRANSFERS, Outcome.KV_BLOCKS)


def close(value):
    return pytest.approx(value, rel=1e-6)


def fleets(name, *effects, se=0.03):
    return Organisation(name, np.array(effects, dtype=np.float64), np.full(len(effects), se**2))


def each(effects, errors):
    return [
        Organisation(f"o{at}", np.array([effect]), np.array([se**2]))
        for at, (effect, se) in enumerate(zip(effects, errors, strict=True))
    ]


@pytest.mark.parametrize(
    ("effects", "errors", "delta", "tau2", "se", "share", "low", "high"),
    [
        (
            (-0.25, -0.18, -0.30, -0.12, -0.22, -0.27),
            (0.04, 0.05, 0.06, 0.045, 0.07, 0.05),
            -0.2199983723411177,
            0.00200165555436805,
            0.02780259273406425,
            0.21461912475188674,
            -0.37351705453781037,
            -0.06647969014442501,
        ),
        (
            (-0.6, -0.1, 0.05, -0.3, -0.2),
            (0.05, 0.06, 0.04, 0.08, 0.05),
            -0.22899564984249238,
            0.07268293363628006,
            0.12326168199228107,
            0.20453476328707748,
            -1.2715025767325108,
            0.8135112770475261,
        ),
    ],
)
def test_the_worked_cases(effects, errors, delta, tau2, se, share, low, high):
    found = across(each(effects, errors))
    assert (found.delta, found.tau2, found.se, found.share) == (close(delta), close(tau2), close(se), close(share))
    assert (found.interval.low, found.interval.high) == (close(low), close(high))


def test_organisations_that_agree_by_chance_are_not_believed_more_than_their_errors_allow():
    found = across([fleets(name, -0.2) for name in "abcde"])
    assert (found.tau2, found.se) == (0.0, close(0.03 / 5**0.5))


def test_an_organisation_weighs_as_one_however_many_fleets_it_brings():
    found = across([fleets("a", *[log(0.4)] * 6), *(fleets(name, 0.0) for name in "bcde")])
    assert (found.organisations, found.fleets) == (5, 10)
    assert found.share == close(0.20035763728842973)
    assert found.largest == "a"
    assert (found.without.delta, found.without.organisations) == (0.0, 4)


def test_one_organisation_says_nothing_about_the_next():
    found = across([fleets("a", -0.5)])
    assert (found.interval.low, found.interval.high, found.without) == (-inf, inf, None)
    assert across([]) is None
    assert across([fleets("a")]) is None


@given(st.permutations(range(6)))
def test_the_order_leaves_no_trace(order):
    organisations = [fleets(f"o{at}", -0.1 * at, 0.05 * at) for at in range(6)]
    assert across([organisations[at] for at in order]) == across(organisations)


def verdict(primary, *, strata=None, **others):
    """`others` by outcome; a guard that is not named changed nowhere."""
    field = {TTFT: estimate(TTFT, Measured(primary))}
    for outcome in _GUARDS:
        given_ = others.get(outcome.value)
        field[outcome] = estimate(outcome, Measured((), 1) if given_ is None else Measured(given_))
    own = {TTFT: estimate(TTFT, Measured(primary))}
    return field_verdict(field, {"FLASH_ATTN": own} if strata is None else strata)


def better(n, effect=-0.25, se=0.02):
    return [fleets(f"o{at}", effect + 0.005 * (at % 3), se=se) for at in range(n)]


def test_six_organisations_that_gain_are_ready_for_the_stratum():
    found = verdict(better(6))
    assert (found.state, found.reason, found.scope) == ("ready", "better", ("FLASH_ATTN",))


def test_one_organisation_with_six_fleets_and_four_without_an_effect_are_never_ready():
    organisations = [fleets("a", *[log(0.4)] * 6), *(fleets(name, 0.0) for name in "bcde")]
    found = verdict(organisations)
    assert found.state == "on_track"
    assert found.reason == "not_yet_better"
    assert "Without the largest organisation time to first token changes by +0.0%." in found.why


@given(
    st.integers(1, 12),
    st.floats(0.001, 0.3),
    st.lists(st.floats(0.001, 0.3), min_size=4, max_size=4),
    st.floats(-3, -0.05),
)
def test_nor_with_any_precision_of_any_of_them(number, se, others, effect):
    organisations = [
        fleets("a", *[effect] * number, se=se),
        *(fleets(name, 0.0, se=one) for name, one in zip("bcde", others, strict=True)),
    ]
    assert verdict(organisations).state != "ready"


@pytest.mark.parametrize(
    ("organisations", "state", "reason"),
    [
        ([], "waiting", "too_few_organisations"),
        (better(4), "waiting", "too_few_organisations"),
        ([*better(5), fleets("big", -0.25, se=0.005)], "waiting", "one_dominates"),
        (better(6, effect=-0.04, se=0.06), "on_track", "not_yet_better"),
        (better(8, effect=0.0, se=0.01), "neutral", "little_difference"),
        (better(6, effect=0.25), "regression", "time_to_first_token"),
    ],
)
def test_every_row(organisations, state, reason):
    found = verdict(organisations)
    assert (found.state, found.reason) == (state, reason)


def test_decode_that_pays_for_it_is_a_regression():
    found = verdict(better(6), inter_token_latency=better(6, effect=0.12, se=0.01))
    assert (found.state, found.reason) == ("regression", "inter_token_latency")


def test_more_failures_are_a_regression_and_few_that_can_be_compared_block():
    assert verdict(better(6), failed_transfers=better(6, effect=0.9)).reason == "failed_transfers"
    found = verdict(better(6), failed_transfers=better(3, effect=0.1))
    assert (found.state, found.reason) == ("on_track", "failed_transfers")


def test_without_a_stratum_there_is_nothing_to_be_ready_for():
    assert verdict(better(6), strata={}).reason == "no_scope"


def test_a_guard_that_nobody_measured_blocks():
    field = {TTFT: estimate(TTFT, Measured(better(6)))}
    own = {"FLASH_ATTN": field}
    found = field_verdict(field, own)
    assert (found.state, found.reason) == ("on_track", "inter_token_latency")
    assert "Nobody measured KV blocks." in found.why
