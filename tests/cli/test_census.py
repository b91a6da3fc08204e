# SPDX-License-Identifier: Apache-2.0
"""What the census says that a fleet of its size can come to; nothing is simulated where the answer is known."""

from datetime import date

import pytest

from kvflags_cli.census import LEAST, census
from kvflags_collector.verdict.evidence import Minima

TODAY = date(2026, 12, 1)


def _deployment(name, *, eligible=True, refusals=(), arm=None, flag="clb"):
    under = {"flag": flag, "eligible": eligible, "refusals": list(refusals), "arm": arm}
    return {"deployment": name, "live_engines": 2, "flags": [under]}


def _asked():
    """A simulation that notes for how many it was asked."""
    sizes = []

    def reach(size):
        sizes.append(size)
        yield {"assumed": "a fifth faster", "rollouts": 16, "verdicts": [{"state": "ready", "median_day": 23.5}]}

    return sizes, reach


def test_it_needs_what_a_verdict_needs():
    assert Minima().treated + Minima().control == LEAST


@pytest.mark.parametrize(("number", "asked"), [(0, []), (15, []), (16, [16]), (40, [40])])
def test_it_looks_ahead_for_a_fleet_that_can_come_to_a_verdict(number, asked):
    sizes, reach = _asked()
    [one] = census([_deployment(f"d{at}") for at in range(max(number, 1))], reach, TODAY)["reach"]
    assert (sizes, bool(one["assuming"])) == (asked, bool(asked))


def test_who_only_waits_to_be_observed_counts_and_who_is_refused_does_not():
    sizes, reach = _asked()
    items = [_deployment(f"d{at}", eligible=at % 2 == 0) for at in range(20)]
    items += [_deployment(f"r{at}", eligible=False, refusals=[{"code": "isolation"}]) for at in range(5)]
    [one] = census(items, reach, TODAY)["reach"]
    assert (one["eligible"], one["waiting"], sizes) == (10, 10, [20])
    assert one["assuming"][0]["verdicts"] == [{"state": "ready", "median_day": 23.5, "about": "2026-12-25"}]


def test_a_rollout_that_has_begun_is_not_guessed_at():
    sizes, reach = _asked()
    [one] = census([_deployment(f"d{at}", arm="control" if at else None) for at in range(20)], reach, TODAY)["reach"]
    assert (one["begun"], one["assuming"], sizes) == (True, [], [])


def test_each_flag_has_its_own():
    _, reach = _asked()
    items = [_deployment("a"), _deployment("b", flag="other")]
    assert [one["flag"] for one in census(items, reach, TODAY)["reach"]] == ["clb", "other"]
