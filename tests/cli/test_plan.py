# SPDX-License-Identifier: Apache-2.0
"""Plans: the census, what is to be replaced and how, and a status that waits and gates a pipeline."""

import pytest

KEY = "cross-layer-blocks"
WHY = ("--reason", "because", "--author", "ada")


@pytest.fixture
def rolling(kvflags, fleet):
    """Two deployments observed, one of which is to be treated, and one without isolation."""
    kvflags("flags", "create", KEY, "--feature", "cross_layer_blocks", "--baseline", "0", "--quiet", "0", *WHY)
    for name in "ab":
        fleet.pair(f"prod/chat/{name}", "r1")
    fleet.pair("prod/chat/c", "r1", isolation="unknown")
    kvflags("rollout", "set", KEY, "--count", "1", *WHY)
    return fleet


def test_the_census(kvflags, rolling):
    census = kvflags("plan", "fleet").out.splitlines()
    assert census[0] == "DEPLOYMENT   FLAG                ENGINES TO REPLACE  ELIGIBLE"
    assert census[1].split() == ["prod/chat/a", KEY, "2", "yes"]
    assert "no: It is not stated what keeps generations apart" in census[3]
    assert census[-1].startswith("2 of 3 deployments eligible. Too few for a verdict")


def test_both_arms_are_replaced_and_each_deployment_waits_for_the_one_before(kvflags, rolling):
    plan = kvflags("plan", "restarts", KEY, "--json").document["data"]
    assert {item["deployment"]: item["arm"] for item in plan} == {
        "prod/chat/a": plan[0]["arm"],
        "prod/chat/b": plan[1]["arm"],
    }
    assert {plan[0]["arm"], plan[1]["arm"]} == {"treatment", "control"}
    script = kvflags("plan", "restarts", KEY, "-o", "kubectl", "--selector", "app={name}").out.splitlines()
    assert script[0] == "set -e"
    assert "kubectl --context prod -n chat set env deployment,statefulset -l app=a KVFLAGS_GENERATION=r1.kv2" in script
    assert "kubectl --context prod -n chat rollout status deployment,statefulset -l app=a --timeout=30m" in script


def test_what_is_condemned_comes_first_and_nothing_is_left_when_it_was_replaced(kvflags, rolling):
    for name in "ab":
        rolling.pair(f"prod/chat/{name}", "r2")
    kvflags("rollout", "kill", KEY, *WHY)
    [item] = kvflags("plan", "restarts", KEY, "-o", "json").document["data"]
    assert (item["why"], item["next_generation"]) == ("condemned", "r2.kv3")


def test_a_status_that_waits_gates_a_pipeline(kvflags, rolling):
    waiting = kvflags("rollout", "status", KEY, "--timeout", "0.1s")
    assert waiting.code == 3
    assert waiting.err.startswith("1 deployments to replace: prod/chat/")
    kvflags("rollout", "abort", KEY, *WHY)
    assert kvflags("rollout", "status", KEY, "--timeout", "5s").code == 1


def test_a_status_that_waits_ends_when_nothing_is_left_to_do(kvflags, fleet):
    kvflags("flags", "create", KEY, "--feature", "cross_layer_blocks", *WHY)
    fleet.pair("prod/chat/a", "r1")
    assert kvflags("rollout", "status", KEY, "--timeout", "5s").code == 0
