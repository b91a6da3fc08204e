# SPDX-License-Identifier: Apache-2.0
"""`kvflags simulate`: rollouts on synthetic fleets, the same for the same seed, in words and as JSON."""

import pytest

SMALL = ("simulate", "--rollouts", "6", "--deployments", "60", "--effect", "-0.4", "--seed", "3")


def test_a_strong_effect_becomes_ready(kvflags):
    data = kvflags(*SMALL, "--json").document["data"]
    assert (data["rollouts"], data["deployments"], data["effect"], data["seed"]) == (6, 60, -0.4, 3)
    assert sum(row["rollouts"] for row in data["verdicts"]) == 6
    ready = next(row for row in data["verdicts"] if row["state"] == "ready")
    assert ready["rollouts"] >= 5
    assert 14 <= ready["median_day"] <= 60


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(kvflags):
    first, again = kvflags(*SMALL, "--json"), kvflags(*SMALL, "--json")
    assert first.out == again.out
    assert first.out != kvflags(*SMALL, "--seed", "4", "--json").out


def test_in_words(kvflags):
    result = kvflags(*SMALL)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("6 rollouts of 60 deployments over 60 days, effect -40% (SD 0), failures x1, seed 3\n")
    assert "VERDICT" in result.out
    assert "ready" in result.out


@pytest.mark.parametrize("deployments", [1, 2, 5])
def test_the_smallest_fleets_wait(kvflags, deployments):
    data = kvflags("simulate", "--rollouts", "3", "--deployments", str(deployments), "--json").document["data"]
    assert {row["state"] for row in data["verdicts"] if row["rollouts"]} <= {"waiting", "hold"}


def test_one_day(kvflags):
    assert kvflags("simulate", "--rollouts", "1", "--days", "1").code == 0
