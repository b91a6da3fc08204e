# SPDX-License-Identifier: Apache-2.0
"""Small seeded versions of the benchmark's figures, and what must hold on any fleet: order, looks, seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvflags_collector.verdict import errors, mismatch
from kvflags_collector.verdict.decide import VerdictState, verdict
from kvflags_collector.verdict.effect import Design
from kvflags_collector.verdict.evidence import Trials
from kvflags_collector.verdict.outcomes import PRIMARY
from kvflags_collector.verdict.placebo import DeploymentVerdict, place
from kvflags_collector.verdict.simulate.exposure import expose
from kvflags_collector.verdict.simulate.fleet import draw
from kvflags_collector.verdict.simulate.plan import Plan
from kvflags_collector.verdict.simulate.rollout import Rollout, simulate

SEED = 11


def _ends(plan, number):
    return [simulate(plan, SEED, k) for k in range(number)]


def _rollout(plan, number=0):
    return Rollout(plan, np.random.default_rng([SEED, number]))


def test_without_an_effect_nothing_is_ready_and_hardly_anything_is_rolled_back():
    ends = _ends(Plan(deployments=50), 40)
    assert [end.state for end in ends].count(VerdictState.READY) == 0
    assert [end.state for end in ends].count(VerdictState.REGRESSION) <= 3


def test_a_fifth_faster_becomes_ready_within_weeks():
    ends = _ends(Plan(deployments=100, effect=-0.2, heterogeneity=0.1), 16)
    ready = [end for end in ends if end.state is VerdictState.READY]
    assert len(ready) >= 14
    assert max(end.day for end in ready) < 45


def test_five_times_the_failures_are_rolled_back_however_fast_it_is():
    ends = _ends(Plan(deployments=50, effect=-0.3, error_ratio=5), 16)
    assert {end.state for end in ends} == {VerdictState.REGRESSION}


def test_decode_that_pays_is_never_ready():
    ends = _ends(Plan(deployments=60, effect=-0.3, inter_token=0.1), 12)
    assert VerdictState.READY not in {end.state for end in ends}
    assert "inter_token_latency" in {end.reason for end in ends}


def test_a_stratum_that_gets_worse_is_never_in_the_scope():
    ends = _ends(Plan(deployments=100, strata_effects=(-0.2, 0.2, -0.2, -0.2)), 12)
    assert not any("FLASHINFER" in end.scope for end in ends)


def test_effects_that_differ_do_not_make_the_interval_miss():
    missed = 0
    for number in range(40):
        rollout = _rollout(Plan(deployments=50, heterogeneity=0.3), number)
        events, values = rollout.events, rollout.events.values[PRIMARY]
        for day in np.unique(rollout.matured):
            seen = rollout.matured <= day
            effect = Design(events.cohort[seen], events.stratum[seen], events.treated[seen]).effect(values[seen])
            interval = effect.interval(0.05) if effect else None
            if interval and not interval.low <= 0 <= interval.high:
                missed += 1
                break
    assert missed <= 4


def test_half_of_the_treated_lost_is_seen():
    plan = Plan(deployments=400, lost=0.5)
    found = [_rollout(plan, number).look(plan.end) for number in range(3)]
    assert [(one.state, one.reason) for one in found] == [(VerdictState.INVALID, "sample_ratio_mismatch")] * 3


def test_a_guard_seldom_fires_for_nothing_and_mostly_for_five_times_the_failures():
    fired = {}
    for factor in (1, 5):
        fleet = draw(Plan(deployments=200, error_ratio=factor), np.random.default_rng(SEED))
        before = fleet.errors[:, :28], fleet.transfers[:, :28]
        after = (fleet.errors + fleet.excess)[:, 28:84], fleet.transfers[:, 28:84]
        found = errors.evidence(before, after, errors.fleet_dispersion(*before))
        fired[factor] = float(np.mean(found.max(axis=1) > errors.threshold(np.zeros(0))))
    assert fired[1] <= 0.06
    assert fired[5] >= 0.6


@pytest.mark.parametrize(("effect", "least", "most"), [(0.0, 0.0, 0.12), (-0.4, 0.85, 1.0)])
def test_one_deployment_is_held_against_what_controls_do(effect, least, most):
    fleet = draw(Plan(deployments=200, effect=effect), np.random.default_rng(SEED))
    treated = fleet.lot < 0.5
    after = fleet.latency[:, 7:21] + np.where(treated, fleet.effect, 0.0)[:, None]
    placed = place(fleet.latency[:, :7], after, treated, np.zeros(200, dtype=np.int64))
    assert placed is not None
    assert least <= np.mean([one is DeploymentVerdict.POSITIVE for one in placed.verdicts]) <= most


def test_too_few_controls_say_nothing_of_one_deployment():
    fleet = draw(Plan(deployments=40), np.random.default_rng(SEED))
    assert place(fleet.latency[:, :7], fleet.latency[:, 7:10], np.arange(40) >= 14, np.zeros(40, dtype=int)) is None


def test_a_breaker_needs_two_hot_buckets_running():
    transfers = np.full((4, 4), 1000.0)
    hot = np.array([[60, 60, 0, 0], [60, 0, 60, 0], [0, 0, 49, 49], [0, 0, 50, 50.0]])
    assert errors.breaker(hot, transfers).tolist() == [True, False, False, True]
    assert errors.breaker(hot, transfers * 100).tolist() == [False] * 4


def test_a_burst_at_most_doubles_the_evidence():
    before = np.full((1, 28), 2.0), np.full((1, 28), 10_000.0)
    burst = np.array([[5000.0, 0, 0, 0]]), np.full((1, 4), 10_000.0)
    assert errors.evidence(before, burst, 1.0).max() <= 2.0


def test_looks_in_between_change_nothing_and_neither_does_the_order_of_events():
    plan = Plan(deployments=60, effect=-0.2, heterogeneity=0.1)
    rollout = _rollout(plan, 2)
    days = list(rollout.looks())
    told = {day: rollout.look(day).state for day in days}
    last = None
    shuffle = np.random.default_rng(0)
    for day in range(days[0], plan.end):
        last = told.get(day, last)
        given = rollout.inputs(day)
        order = shuffle.permutation(len(given.events))
        events = given.events
        mixed = replace(
            events,
            deployment=events.deployment[order],
            cohort=events.cohort[order],
            stratum=events.stratum[order],
            treated=events.treated[order],
            values={name: values[order] for name, values in events.values.items()},
            failures=events.failures[order],
        )
        assert verdict(replace(given, events=mixed)).state == last


def test_the_ratio_of_the_arms_is_that_of_the_draw():
    fleet = draw(Plan(deployments=500), np.random.default_rng(SEED))
    exposure = expose(Plan(deployments=500), fleet)
    trials = Trials(exposure.probability, exposure.treated)
    assert mismatch.e_value(trials.probability, trials.treated) < 20
    assert np.all(np.bincount(exposure.deployment[exposure.treated]) <= 1)
