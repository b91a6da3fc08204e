# SPDX-License-Identifier: Apache-2.0
"""The loop closed: observe, roll out to one of two deployments, verify, measure; then all an operator may do to it."""

import sqlite3

import pytest
from fleet import FLAG, eventually
from link import Link, State

from kvflags_cli.demo.traffic import prompts

PROMPTS = prompts("same", 12, seed=3, longest=900)
SOME = prompts("some", 4, seed=4, longest=400)


@pytest.fixture(scope="module")
def first(fleet):
    """Both deployments in their first generation, observed at a percentage of 0."""
    pairs = {name: fleet.pair(name, "r1").start().wait_ready() for name in ("one", "other")}
    results = {name: pair.send(SOME, 8) for name, pair in pairs.items()}
    eventually(lambda: all(row["observed_at"] for row in fleet.get("deployments")["items"]), "both to be observed")
    return pairs, results


@pytest.fixture(scope="module")
def second(fleet, first):
    """The rollout at a count of one, and the second generation beside the first: (treated, control)."""
    fleet.target(count=1)
    rows = fleet.get("flags", FLAG, "status")["deployments"]
    arms = {row["arm"]: row["deployment"].rpartition("/")[2] for row in rows}
    assert set(arms) == {"treatment", "control"}
    # The first generation of the control is no longer needed, and two cores have enough to do.
    first[0][arms["control"]].stop()
    return [fleet.pair(arms[arm], "r2").start().wait_ready() for arm in ("treatment", "control")]


@pytest.fixture(scope="module")
def names(second):
    return [pair.name.rpartition("/")[2] for pair in second]


def test_at_zero_percent_engines_are_only_observed(fleet, first):
    for name in ("one", "other"):
        row = fleet.row(name, "r1")
        assert (row["variant"], row["arm"], row["transfers"], row["failed"]) == ("off", None, len(SOME), 0)
        assert row["layout"] == {
            "requested": "LBHNC",
            "resolved": "LBHNC",
            "effective": False,
            "regions": 8,
            "layers": 8,
        }


def test_treatment_control_and_a_local_prefill_agree_bit_for_bit(second):
    treated, control = second
    for request_id, tokens in PROMPTS.items():
        local = control.local(f"local-{request_id}", tokens)
        for pair in (treated, control):
            crossed = pair.request(request_id, tokens)
            assert (crossed.finish_reason, crossed.tokens) == ("length", local.tokens)
            assert crossed.logprobs == local.logprobs
    assert len({tuple(control.local(f"varied-{n}", tokens).logprobs) for n, tokens in enumerate(PROMPTS.values())}) > 1


def test_the_report_shows_that_the_treatment_took_hold(fleet, second, names):
    rows = eventually(
        lambda: (
            all((row := fleet.row(name, "r2")) and row["transfers"] == len(PROMPTS) for name in names)
            and [fleet.row(name, "r2") for name in names]
        ),
        "every transfer of the second generation",
    )
    treated, control = rows
    assert (treated["arm"], treated["variant"], treated["comparison"]) == ("treatment", "on", "included")
    assert (control["arm"], control["variant"], control["comparison"]) == ("control", "off", "included")
    assert treated["layout"] == {
        "requested": "BHLNC",
        "resolved": "BHLNC",
        "effective": True,
        "regions": 1,
        "layers": 8,
    }
    assert control["layout"]["regions"] == 8
    assert treated["bytes"] == control["bytes"] > 0
    assert treated["descriptors_per_transfer"] <= treated["blocks_per_transfer"]
    assert control["descriptors_per_transfer"] >= 8
    verdict = fleet.report()["verdict"]
    assert verdict["state"] == "waiting"
    assert verdict["why"]


def test_spans_are_in_the_database_with_their_names(fleet, second, names):
    with sqlite3.connect(f"file:{fleet.database}?mode=ro", uri=True) as database:
        rows = database.execute(
            "SELECT arm, count(*), sum(bytes > 0), sum(post_ns > 0), sum(end_ns > start_ns) FROM spans"
            " WHERE name = 'kv.transfer' AND generation = 'r2' GROUP BY arm ORDER BY arm"
        ).fetchall()
    count = len(PROMPTS)
    assert rows == [("control", count, count, count, count), ("treatment", count, count, count, count)]


def test_an_engine_that_restarts_while_the_percentage_changes_keeps_its_pin(fleet, second, names):
    treated, _ = second
    fleet.target(percent=0)
    treated.decode.kill()
    treated.decode.start().wait_ready()
    assert all(result.finish_reason == "length" for result in treated.send(SOME, 8).values())
    status = fleet.get("flags", FLAG, "status")
    row = next(row for row in status["deployments"] if row["deployment"].endswith(names[0]))
    pinned = next(one for one in row["generations"] if one["generation"] == "r2")
    assert (pinned["variant"], pinned["state"]) == ("on", "pinned")


def test_a_generation_started_without_the_lab_plugin_drops_the_preference_and_says_so(fleet, second, names):
    """Pinned on, since it was observed as eligible; dropped by the backend: served, not effective, verdict invalid."""
    fleet.target(count=1)
    dropped = fleet.pair(names[0], "r3", environ={"KVFLAGS_LAB_CPU_LAYOUTS": "0"}).start().wait_ready()
    try:
        assert all(result.finish_reason == "length" for result in dropped.send(SOME, 8).values())
        row = eventually(
            lambda: (row := fleet.row(names[0], "r3")) and row["transfers"] and row, "the dropped generation"
        )
        assert (row["variant"], row["arm"]) == ("on", "treatment")
        assert (row["layout"]["requested"], row["layout"]["resolved"]) == ("BHLNC", "LBHNC")
        assert row["layout"]["effective"] is False
        verdict = eventually(lambda: (v := fleet.report()["verdict"])["state"] == "invalid" and v, "an invalid verdict")
        assert "effective" in " ".join(verdict["why"])
    finally:
        dropped.stop()


def test_a_joiner_in_a_condemned_generation_is_told_what_is_pinned(fleet, second, names):
    """The kill switch condemns, it does not split: an engine that joins afterwards still agrees with its peers."""
    treated, _ = second
    fleet.put("flags", FLAG, "kill-switch", body={"on": True})
    joiner = fleet.pair(names[0], "r2", options={"module_path": "kvflags.connector"})
    joiner.prefill = treated.prefill
    joiner.decode = joiner._engine("joiner", "kv_consumer", {}).start().wait_ready()
    try:
        assert all(result.finish_reason == "length" for result in joiner.send(SOME, 8).values())
        rows = eventually(
            lambda: len(rows := fleet.engines(names[0], "r2")) >= 3 and all(r["resolved"] for r in rows) and rows,
            "the joiner's heartbeat",
        )
        assert {row["resolved"] for row in rows} == {"BHLNC"}
        status = fleet.get("flags", FLAG, "status")
        row = next(row for row in status["deployments"] if row["deployment"].endswith(names[0]))
        pinned = next(one for one in row["generations"] if one["generation"] == "r2")
        assert (pinned["variant"], pinned["state"]) == ("on", "condemned")
        assert pinned["to_replace"] >= 3
    finally:
        joiner.decode.stop()
        fleet.put("flags", FLAG, "kill-switch", body={"on": False})


def test_a_decode_engine_that_is_cut_off_is_recognised_as_mixed(fleet, second, names):
    """Nothing tells it the pin, so it starts off and its transfers fail visibly; once it is heard of, it is named."""
    treated, _ = second
    link = Link(fleet.service.url, State.CUT)
    cut = fleet.pair(names[0], "r2", url=link.url)
    cut.prefill = treated.prefill
    cut.decode = cut._engine("cut-off", "kv_consumer", {}).start().wait_ready()
    try:
        assert {result.finish_reason for result in cut.send(SOME, 8).values()} == {"error"}
        assert cut.local("still-alive", [5] * 40, 4).finish_reason == "length"
        link.state = State.UP
        alarm = eventually(
            lambda: [a for a in fleet.report()["alarms"] if a["deployment"].endswith(names[0])], "the mixed generation"
        )[0]
        assert (alarm["kind"], alarm["generation"]) == ("mixed_generation", "r2")
        row = eventually(
            lambda: (row := fleet.row(names[0], "r2")) and row["failed"] == len(SOME) and row,
            "the buffered error spans",
        )
        assert row["errors"] == {"handshake_failed": len(SOME)}
    finally:
        cut.decode.stop()
        link.close()


def test_a_decode_engine_that_is_cut_off_but_carries_the_decision_agrees(fleet, second, names):
    treated, _ = second
    decided = fleet.post("flags", FLAG, "decide", body={"deployment": treated.name, "generation": "r2"})
    environ = {"KVFLAGS_DECISION": decided["signed"], "KVFLAGS_DECISION_KEY": decided["key"]}
    link = Link(fleet.service.url, State.SILENT)
    handed = fleet.pair(names[0], "r2", url=link.url)
    handed.prefill = treated.prefill
    handed.decode = handed._engine("handed-out", "kv_consumer", environ).start().wait_ready()
    try:
        assert {result.finish_reason for result in handed.send(SOME, 8).values()} == {"length"}
    finally:
        handed.decode.stop()
        link.close()


def test_descriptors_fall_with_the_layers(fleet, second, names):
    """Eight layers in one region: about an eighth of the descriptors, in pools that the same traffic fragmented."""
    treated, control = second
    churn = prompts("churn", 24, seed=5, longest=900)
    for pair in (treated, control):
        assert {result.finish_reason for result in pair.send(churn, 8).values()} == {"length"}

    def ratio():
        rows = [fleet.row(name, "r2") for name in names]
        enough = all(row["transfers"] >= len(churn) + len(PROMPTS) for row in rows)
        return enough and rows[1]["descriptors_per_transfer"] / rows[0]["descriptors_per_transfer"]

    assert eventually(ratio, "the churned transfers") == pytest.approx(8, rel=0.35)
