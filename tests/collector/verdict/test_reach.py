# SPDX-License-Identifier: Apache-2.0
"""What a fleet can come to: simulated with all its deployments there, and its own default ramp."""

import numpy as np
import pytest

from kvflags_collector.verdict.simulate.exposure import expose
from kvflags_collector.verdict.simulate.fleet import draw
from kvflags_collector.verdict.simulate.plan import Plan
from kvflags_collector.verdict.simulate.reach import ASSUMED, reach


@pytest.fixture(scope="module")
def sixty():
    """{assumed: {verdict: rollouts}} of a fleet of 60."""
    return {one["assumed"]: {row["state"]: row["rollouts"] for row in one["verdicts"]} for one in reach(60)}


def test_what_is_better_is_found_and_what_fails_is_stopped(sixty):
    assert list(sixty) == [words for words, _, _ in ASSUMED]
    assert sixty["a fifth faster"].get("ready", 0) >= 12
    assert sixty["five times the failures"].get("regression", 0) >= 15
    assert "ready" not in sixty["no different"]


def test_a_fleet_of_sixteen_can_fill_both_arms_and_learns_less_and_later():
    faster, _, failing = reach(16)
    states = {row["state"]: row for row in faster["verdicts"]}
    # Ten days of steps, three until its last events count: nothing good is known before.
    assert "ready" not in states or states["ready"]["median_day"] >= 12
    assert sum(row["rollouts"] for row in faster["verdicts"]) == faster["rollouts"] == 16
    assert {row["state"] for row in failing["verdicts"]} <= {"regression", "waiting", "on_track", "hold"}


def test_the_same_number_gives_the_same_answer():
    assert list(reach(16)) == list(reach(16))


def test_a_count_treats_exactly_that_many_of_those_that_are_there():
    plan = Plan(deployments=16, ramp=((7, 1 / 16), (10, 0.5)), there=1.0, counted=True)
    fleet = draw(plan, np.random.default_rng(3))
    exposure = expose(plan, fleet)
    assert (fleet.arrived == 0).all()
    assert [int(exposure.treated[exposure.day == day].sum()) for day in (7, 10)] == [1, 7]
