# SPDX-License-Identifier: Apache-2.0
"""The decision table, row by row: each state is reached, says why, and nothing good is said on top of something bad."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fleets import NOISE, events, inputs
from hypothesis import given
from hypothesis import strategies as st

from kvflags_collector.verdict.decide import VerdictState, verdict
from kvflags_collector.verdict.evidence import Check, Fire, Trials
from kvflags_collector.verdict.outcomes import Outcome

TTFT, ITL = Outcome.TIME_TO_FIRST_TOKEN, Outcome.INTER_TOKEN_LATENCY
FAILED, KV = Outcome.FAILED_TRANSFERS, Outcome.KV_BLOCKS
BETTER = {TTFT: -0.3}


def judged(of, **more):
    return verdict(inputs(of, **more))


def test_better_and_not_worse_is_ready_for_its_scope():
    found = judged(events(effects=BETTER))
    assert (found.state, found.reason, found.scope) == (VerdictState.READY, "better", ("FLASH_ATTN",))
    assert "FLASH_ATTN" in found.next
    assert found.compared.outcomes[TTFT].effect.ratio == pytest.approx(-0.3, abs=0.05)


def test_decode_that_pays_for_it_is_a_regression_that_names_it():
    found = judged(events(effects={TTFT: -0.3, ITL: 0.1}))
    assert (found.state, found.reason) == (VerdictState.REGRESSION, "inter_token_latency")
    assert found.why[0].startswith("Inter token latency got worse: +10%")


def test_decode_that_may_pay_for_it_is_not_ready():
    found = judged(events(effects={TTFT: -0.3, ITL: 0.025}))
    assert (found.state, found.reason) == (VerdictState.ON_TRACK, "inter_token_latency")
    assert "limit <+3%" in found.why[0]


def test_a_slower_fleet_is_a_regression():
    found = judged(events(effects={TTFT: 0.3}))
    assert (found.state, found.reason) == (VerdictState.REGRESSION, "time_to_first_token")


def test_failing_more_is_a_regression_however_fast():
    found = judged(events(effects={TTFT: -0.4, FAILED: 4.0}))
    assert (found.state, found.reason) == (VerdictState.REGRESSION, "failed_transfers")
    assert found.why[0].startswith("Transfers fail more often with the feature: x")


def test_doubt_does_not_delay_a_rollback_for_failures():
    bad = inputs(events(effects={FAILED: 4.0}))
    mixed = [replace(one, mixed=True) for one in bad.deployments]
    assert verdict(replace(bad, deployments=mixed)).state == VerdictState.REGRESSION


def test_no_effect_is_neutral_once_that_is_known():
    found = judged(events(treated=150, control=150))
    assert (found.state, found.reason) == (VerdictState.NEUTRAL, "little_difference")


def test_an_unknown_effect_is_on_track_with_a_forecast():
    found = judged(events(treated=10, control=10, effects={TTFT: -0.1}))
    assert (found.state, found.reason) == (VerdictState.ON_TRACK, "not_yet_better")
    assert "more treated deployments" in found.next


def test_a_guard_that_fired_holds_until_acknowledged_and_is_returned_either_way():
    fire = Fire(deployment="d3", says="70 of 1,000 transfers failed in ten minutes.")
    held = judged(events(effects=BETTER), fires=[fire])
    assert (held.state, held.reason, held.returned) == (VerdictState.HOLD, "guard_fired", ("d3",))
    seen = judged(events(effects=BETTER), fires=[replace(fire, acknowledged=True)])
    assert (seen.state, seen.returned) == (VerdictState.READY, ("d3",))


def test_many_guards_are_the_fleets_affair():
    fires = [Fire(deployment=f"d{n}", says="x", acknowledged=True) for n in range(6)]
    assert judged(events(), fires=fires).reason == "guards_fired"
    assert judged(events(), fires=fires[:5]).reason != "guards_fired"


def test_a_canary_that_differs_is_never_ready():
    found = judged(events(effects=BETTER), canaries=["d4"])
    assert (found.state, found.reason, found.returned) == (VerdictState.HOLD, "canary_mismatch", ("d4",))


def test_lost_kv_blocks_hold():
    of = events(effects=BETTER)
    values = {**of.values, KV: np.where(of.treated, np.log(0.9), 0.0) + np.random.default_rng(1).normal(0, 0.001, 60)}
    found = judged(replace(of, values=values))
    assert (found.state, found.reason) == (VerdictState.HOLD, "kv_blocks")


def test_kv_blocks_lost_everywhere_alike_are_not_taken_for_met():
    of = events(effects=BETTER)
    found = judged(replace(of, values={**of.values, KV: np.where(of.treated, np.log(0.97), 0.0)}))
    assert (found.state, found.reason) == (VerdictState.ON_TRACK, "kv_blocks")


def test_a_stratum_that_gets_worse_is_rolled_back_by_itself():
    stratum = [0] * 20 + [1] * 20 + [0] * 20 + [1] * 20
    of = events(40, 40, strata=("FLASH_ATTN", "FLASHINFER"), stratum=stratum)
    shift = np.where(of.treated, np.where(of.stratum == 1, 0.2, -0.4), 0.0)
    found = judged(replace(of, values={**of.values, TTFT: of.values[TTFT] + shift}))
    assert (found.state, found.reason) == (VerdictState.HOLD, "stratum_regression")
    assert found.why[0].startswith("FLASHINFER: Time to first token got worse")


def test_a_stratum_too_small_is_left_out_of_the_scope():
    stratum = [0] * 27 + [1] * 3 + [0] * 27 + [1] * 3
    found = judged(events(strata=("FLASH_ATTN", "FLASHINFER"), stratum=stratum, effects=BETTER))
    assert (found.state, found.scope) == (VerdictState.READY, ("FLASH_ATTN",))


def test_a_stratum_without_its_treatment_is_invalid_and_the_others_are_judged():
    stratum = [0] * 30 + [1] * 30 + [0] * 30 + [1] * 30
    good = inputs(events(60, 60, strata=("FLASH_ATTN", "FLASHINFER"), stratum=stratum, effects=BETTER))
    off = [replace(one, effective=False) if one.stratum == "FLASHINFER" else one for one in good.deployments]
    found = verdict(replace(good, deployments=off))
    assert (found.state, found.scope, list(found.invalid)) == (VerdictState.READY, ("FLASH_ATTN",), ["FLASHINFER"])
    assert found.compared.treated == 30


def test_arms_on_different_block_sizes_are_not_comparable_and_never_better():
    stratum = [0] * 30 + [1] * 30
    found = judged(events(strata=("block 64", "block 16"), stratum=stratum))
    assert (found.state, found.reason) == (VerdictState.INVALID, "not_comparable")
    assert "treated: block 64; control: block 16" in found.why[0]


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        (Check.ASSIGNMENT, "sample_ratio_mismatch"),
        (Check.SILENCE, "silence"),
        (Check.RESTARTS, "restart_rates_differ"),
        (Check.LEFT_OUT, "left_out"),
    ],
)
def test_what_depends_on_the_arm_and_must_not_is_invalid(check, reason):
    lopsided = Trials(np.full(30, 0.5), np.arange(30) < 27)
    found = judged(events(effects=BETTER), trials={check: lopsided})
    assert (found.state, found.reason) == (VerdictState.INVALID, reason)
    assert "27 of 30 treated, 15.0 expected" in found.why[0]


def test_a_ratio_that_is_only_odd_is_a_warning():
    odd = Trials(np.full(60, 0.5), np.arange(60) < 43)
    found = judged(events(effects=BETTER), trials={Check.ASSIGNMENT: odd})
    assert (found.state, len(found.warnings)) == (VerdictState.READY, 1)


def test_volume_that_moved_in_one_arm_only_is_invalid():
    of = events(effects=BETTER)
    moved = np.random.default_rng(3).normal(0, 0.1, 60) + np.where(of.treated, 0.5, 0)
    found = judged(replace(of, invariants={"transfer volume": moved}))
    assert (found.state, found.reason) == (VerdictState.INVALID, "invariant_moved")


# Fleets that lack something: each is a named state with a sentence.


def test_an_arm_without_data_waits():
    of = events(treated=30, control=0)
    found = judged(of)
    assert (found.state, found.reason) == (VerdictState.WAITING, "no_controls")
    assert found.why[0] == "All 30 deployments are treated: without concurrent controls there is no comparison."


def test_one_deployment_waits():
    assert judged(events(treated=1, control=0)).state == VerdictState.WAITING


def test_no_failures_anywhere_says_so_and_gives_no_ratio():
    found = judged(events(effects=BETTER, failures=0))
    assert found.state == VerdictState.READY
    assert found.compared.outcomes[FAILED].effect is None


def test_outcomes_that_never_vary_are_no_measurement():
    of = events()
    found = judged(replace(of, values={**of.values, TTFT: np.where(of.treated, -0.3, 0.0)}))
    assert (found.state, found.reason) == (VerdictState.WAITING, "no_variation")


def test_a_thousandfold_outlier_in_one_deployment_makes_nobody_better():
    of = events(effects={})
    values = of.values[TTFT].copy()
    values[3] -= np.log(1000)
    found = judged(replace(of, values={**of.values, TTFT: values}))
    assert found.state == VerdictState.ON_TRACK


def test_outcomes_in_one_arm_only_are_none():
    of = events(effects=BETTER)
    found = judged(replace(of, values={**of.values, TTFT: np.where(of.treated, of.values[TTFT], np.nan)}))
    assert (found.state, found.reason) == (VerdictState.WAITING, "no_outcomes")


def test_missing_outcomes_of_some_leave_those_out():
    of = events(effects=BETTER)
    found = judged(replace(of, values={**of.values, TTFT: np.where(np.arange(60) % 3 > 0, of.values[TTFT], np.nan)}))
    assert found.compared.outcomes[TTFT].effect.treated == 20


@given(
    treated=st.integers(0, 20),
    control=st.integers(0, 20),
    seed=st.integers(0, 9),
    blank=st.sampled_from([None, *NOISE]),
    failures=st.integers(0, 1),
    strata=st.integers(1, 3),
)
def test_whatever_is_missing_there_is_a_state_with_a_sentence(treated, control, seed, blank, failures, strata):
    n = treated + control
    of = events(
        treated,
        control,
        seed=seed,
        failures=failures,
        strata=tuple("abc"[:strata]),
        stratum=np.random.default_rng(seed).integers(0, strata, n),
    )
    if blank is not None:
        of = replace(of, values={**of.values, blank: np.full(n, np.nan)})
    found = judged(of)
    assert found.reason
    assert found.next
    assert all(found.why)
    assert found.state != VerdictState.READY or (treated >= 8 and control >= 8)
