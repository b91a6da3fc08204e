# SPDX-License-Identifier: Apache-2.0
"""Observe first: nothing is treated that was not seen whole, quiet, transferring and eligible."""

import pytest

from kvflags_collector.rollout import explain, inventory

KEY = "cross-layer-blocks"


def waits_for(fleet, deployment="c/ns/a"):
    items = fleet.ask(inventory.deployments, fleet.now)
    return next(item for item in items if item["deployment"] == deployment)["flags"][0]


def test_what_observation_lacks_is_said(fleet):
    fleet.create(quiet_s=600, baseline_s=600)
    fleet.register("p")
    assert waits_for(fleet)["waiting_for"] == "no prefill and no decode engine heartbeats"
    fleet.beat("p", exercised={"ok": 0, "errors": 0})
    assert waits_for(fleet)["waiting_for"] == "no decode engine heartbeats"
    fleet.register("d", role="decode")
    fleet.beat("d", exercised={"ok": 0, "errors": 2})
    fleet.passes(60)
    assert waits_for(fleet)["waiting_for"] == "the newest engine joined 1 min ago, 10 min of quiet needed"
    for name in ("p", "d"):
        fleet.beat(name, exercised={"ok": 0, "errors": 2})
    for _ in range(24):
        fleet.passes(25)
        for name in ("p", "d"):
            fleet.beat(name, exercised={"ok": 0, "errors": 2})
    assert waits_for(fleet)["waiting_for"] == "no transfer seen yet"
    fleet.beat("d")
    assert waits_for(fleet)["waiting_for"] == "baseline: 0 s of 10 min"
    fleet.passes(300, beating=("p", "d"))
    assert waits_for(fleet)["waiting_for"] == "baseline: 5 min of 10 min"
    fleet.passes(300, beating=("p", "d"))
    assert (waits_for(fleet)["waiting_for"], waits_for(fleet)["eligible"]) == (None, True)


def test_a_role_both_is_both_halves(fleet):
    fleet.create()
    fleet.register("b", role="both")
    fleet.beat("b")
    assert waits_for(fleet)["eligible"]


@pytest.mark.parametrize(
    ("role", "facts", "code"),
    [
        ("decode", {"kv_heads_per_rank": 1}, "one_kv_head_per_rank"),
        ("decode", {"backend": "FLEX_ATTENTION"}, "backend"),
        ("prefill", {"isolation": "unknown"}, "isolation"),
        ("decode", {"isolation": "router"}, "engines_differ"),
        ("decode", {"block_size": 32}, "engines_differ"),
        ("decode", {"tp": 2}, "engines_differ"),
        ("prefill", {"pp": 2}, "pipeline_parallel"),
    ],
)
def test_one_ineligible_engine_keeps_the_deployment_out(fleet, role, facts, code):
    fleet.create()
    for name in ("prefill", "decode"):
        fleet.register(name, role=name)
        fleet.beat(name, facts=facts if name == role else {})
    fleet.aim(percent=100)
    assert code in [refusal["code"] for refusal in waits_for(fleet)["refusals"]]
    assert fleet.rows("assignments") == []
    told = fleet.register("next", generation="g2")
    assert told["variant"] == "off"
    assert told["reason"].startswith("gate:")


def test_one_that_joins_later_keeps_it_out_too(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    fleet.register("third", role="decode")
    fleet.beat("third", facts={"kv_heads_per_rank": 1})
    assert fleet.register("next", generation="g2")["reason"] == "gate:one_kv_head_per_rank"


def test_the_observation_outlives_its_generation(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    fleet.passes(600)
    assert fleet.register("next", generation="g2")["variant"] == "on"


def test_a_half_started_generation_does_not_replace_the_observation(fleet):
    fleet.create(quiet_s=60)
    fleet.pair()
    fleet.passes(70, beating=("c/ns/a-g1-prefill", "c/ns/a-g1-decode"))
    fleet.aim(percent=100)
    fleet.register("p", generation="g2")
    fleet.beat("p")
    assert fleet.rows("deployments", "observed_generation") == [("g1",)]
    assert fleet.register("q", generation="g3")["variant"] == "on"


def test_changed_facts_are_observed_again_with_a_new_baseline(fleet):
    fleet.create(baseline_s=60)
    fleet.pair()
    fleet.passes(60, beating=("c/ns/a-g1-prefill", "c/ns/a-g1-decode"))
    fleet.aim(percent=100)
    newer = {"facts": {"vllm": "0.32.1"}}
    assert [told["reason"] for told in fleet.pair(generation="g2", **newer)] == ["facts_changed"] * 2
    told = fleet.register("r", generation="g3", **newer)
    assert (told["variant"], told["reason"]) == ("off", "not_observed")
    fleet.passes(60, beating=("c/ns/a-g2-prefill", "c/ns/a-g2-decode"))
    told = fleet.register("s", generation="g4", **newer)
    assert (told["variant"], told["arm"]) == ("on", "treatment")


def test_a_static_fact_observed_unchanged_keeps_the_baseline(fleet):
    fleet.create()
    fleet.pair()
    before = fleet.rows("deployments", "baseline_us")
    fleet.passes(30)
    fleet.pair(generation="g2")
    assert fleet.rows("deployments", "baseline_us", "observed_generation") == [(before[0][0], "g2")]


def test_explain_names_the_line_that_wins(fleet):
    fleet.create()
    fleet.pair()
    fleet.passes(100)
    answer = fleet.ask(explain.explain, KEY, "c/ns/a", fleet.now)
    assert answer == {
        "deployment": "c/ns/a",
        "generation": "g1",
        "won": "phase",
        "lines": [
            {"line": "pin", "outcome": "none in force", "won": False},
            {"line": "kill switch", "outcome": "not set", "won": False},
            {"line": "phase", "outcome": "off: phase_draft", "won": True},
        ],
        "pin": None,
        "next": {"variant": "off", "reason": "phase_draft", "line": "phase"},
    }


def test_explain_says_that_a_pin_outranks_the_rest(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    fleet.pair(generation="g2")
    fleet.change("kill_switch", on=True)
    answer = fleet.ask(explain.explain, KEY, "c/ns/a", fleet.now)
    assert answer["won"] == "pin"
    assert answer["lines"] == [
        {"line": "pin", "outcome": "on: assigned (epoch 1, condemned by kill_switch)", "won": True},
        {"line": "kill switch", "outcome": "off: kill_switch", "won": False},
    ]
    assert answer["next"] == {"variant": "off", "reason": "kill_switch", "line": "kill switch"}


def test_before_any_observation_an_engines_own_facts_can_refuse(fleet):
    fleet.create()
    fleet.aim(percent=100)
    assert fleet.register("one head", facts={"kv_heads_per_rank": 1})["reason"] == "gate:one_kv_head_per_rank"
    # What is not known yet refuses nothing by itself: the backend, here.
    assert fleet.register("fine", "c/ns/b")["reason"] == "not_observed"


def test_an_engine_that_left_is_forgotten_within_minutes_by_those_that_go_on(fleet):
    fleet.create()
    fleet.pair()
    fleet.register("odd", role="decode")
    fleet.beat("odd", facts={"block_size": 32})
    prefill, decode = (f"c/ns/a-g1-{role}" for role in ("prefill", "decode"))

    def sizes() -> set[int]:
        [(observed,)] = fleet.rows("deployments", "observed")
        return {facts["block_size"] for facts in observed["decode"]}

    assert sizes() == {16, 32}
    for moved in range(2, 20):
        fleet.passes(25, beating=(prefill,))
        fleet.beat(decode, exercised={"ok": moved, "errors": 0})
    assert sizes() == {16}
