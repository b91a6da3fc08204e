# SPDX-License-Identifier: Apache-2.0
"""Fleets that lack something, from stored hours to the written report: a named state with a sentence, never a number
from nothing, never a crash. Each test's name says what is odd."""

from __future__ import annotations

import json

import pytest
from rich.console import Console
from sqlalchemy import delete
from stored_fleet import DAY_US, Fleet

from kvflags.flags.bucketing import bucket
from kvflags.telemetry.instruments import InstrumentName as Name
from kvflags_cli.render.report import report as on_a_terminal
from kvflags_cli.render.written.html import html
from kvflags_cli.render.written.markdown import markdown
from kvflags_collector.judge.freeze import judge
from kvflags_collector.store.outcome_tables import outcomes_hour

BETTER = {Name.TTFT: -0.3}


def reported(fleet):
    """The report of ten days after the event, written in every format; NaN and infinity are no JSON."""
    fleet.scene.now = fleet.event_us + 10 * DAY_US
    while judge(fleet.scene.db, fleet.scene.now):
        pass
    found = fleet.report()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    for text in (markdown(found), html(found), _drawn(found)):
        assert "nan" not in text.lower().split()
        assert found["verdict"]["reason"] in text.replace("\\", "")
    assert found["verdict"]["next"]
    return found


def said(found):
    return found["verdict"]["state"], found["verdict"]["reason"], found["verdict"]["why"][0]


def outcome(found, name):
    [one] = [one for one in found["outcomes"] if one["outcome"] == name]
    return one


def changed_midway(scene, **facts):
    """The report of a fleet of which one deployment came back with other facts: the other 19 are compared."""
    fleet = Fleet(scene, then=lambda name: facts if name.endswith("/03") else {})
    fleet.store(BETTER)
    found = reported(fleet)
    events = found["evidence"]["events"]
    assert events["treatment"] + events["control"] == 19
    return found


def _drawn(found):
    console = Console(width=400, no_color=True)
    with console.capture() as seen:
        for part in on_a_terminal(found):
            console.print(part)
    return seen.get()


def test_hours_missing_in_every_deployment(fleet):
    fleet.store(BETTER, heard=lambda name, number: number % 3 > 0)
    found = reported(fleet)
    assert said(found) == ("waiting", "too_few_events", "0 treated events can be compared so far; 8 are needed.")
    assert found["outcomes"] == []
    assert found["evidence"]["left_out"] == {"too_little_seen": 20}


def test_hours_missing_in_some_deployments_leave_those_out(fleet):
    fleet.store(BETTER, heard=lambda name, number: name not in fleet.names[:2] or number % 3 > 0)
    found = reported(fleet)
    events = found["evidence"]["events"]
    assert events["treatment"] + events["control"] == 18
    assert found["evidence"]["left_out"] == {"too_little_seen": 2}
    assert found["verdict"]["state"] == "ready"


def test_an_arm_without_data(fleet):
    fleet.store(BETTER, heard=lambda name, number: fleet.treated(name))
    with fleet.scene.db.write() as conn:
        silent = [name for name in fleet.names if not fleet.treated(name)]
        conn.execute(delete(outcomes_hour).where(outcomes_hour.c.deployment.in_(silent)))
    found = reported(fleet)
    assert said(found) == ("waiting", "too_few_events", "0 treated events can be compared so far; 8 are needed.")
    assert (found["evidence"]["unmatched"], found["evidence"]["left_out"]) == (10, {"too_little_seen": 10})
    assert found["outcomes"] == []


def test_outcomes_of_one_arm_alone(fleet):
    fleet.store(BETTER)
    with fleet.scene.db.write() as conn:
        silent = [name for name in fleet.names if not fleet.treated(name)]
        conn.execute(delete(outcomes_hour).where(outcomes_hour.c.deployment.in_(silent)))
    found = reported(fleet)
    says = "Time to first token is not known before and after the event in both arms."
    assert said(found) == ("waiting", "no_outcomes", says)
    assert "time_to_first_token" not in {one["outcome"] for one in found["outcomes"]}


def test_one_deployment(scene):
    fleet = Fleet(scene, 1, count=1)
    fleet.store(BETTER)
    found = reported(fleet)
    says = "1 treated deployment in the comparison; 8 are needed."
    assert said(found) == ("waiting", "too_few_deployments", says)
    assert found["outcomes"] == []
    [row] = [row for row in found["deployments"] if row["latest"]]
    assert row["verdict"] == "insufficient"


def test_a_deployment_that_changed_its_backend_midway(scene):
    found = changed_midway(scene, backend="FLASHINFER")
    [row] = [row for row in found["deployments"] if row["latest"] and row["comparison"] == "excluded"]
    assert (row["deployment"], row["arm"], row["verdict"]) == ("c/ns/03", None, None)
    assert row["excluded_because"] == "facts_changed"
    assert (found["evidence"]["excluded"], found["verdict"]["state"]) == (1, "ready")


def test_a_fleet_that_changed_its_backend_midway(scene):
    fleet = Fleet(scene, then=lambda _: {"backend": "FLASHINFER"})
    fleet.store(BETTER)
    found = reported(fleet)
    assert said(found) == ("waiting", "too_few_deployments", "0 treated deployments in the comparison; 8 are needed.")
    assert (found["outcomes"], found["evidence"]["excluded"]) == ([], 20)


def test_a_deployment_that_changed_its_hardware_midway(scene):
    found = changed_midway(scene, gpu="B200")
    assert found["evidence"]["left_out"] == {"changed": 1}
    assert "Events left out: 1 where backend, hardware" in markdown(found)


def test_no_failure_anywhere(fleet):
    fleet.store(BETTER)
    found = reported(fleet)
    assert found["verdict"]["state"] == "ready"
    failed = outcome(found, "failed_transfers")
    assert (failed["change"], failed["low"], failed["high"], failed["standing"]) == (None, None, None, "met")


def test_a_thousandfold_outlier(fleet):
    odd = next(name for name in fleet.names if fleet.treated(name))
    fleet.store(of=lambda name: {Name.TTFT: -0.999} if name == odd else {})
    found = reported(fleet)
    assert (found["verdict"]["state"], found["verdict"]["reason"]) == ("on_track", "not_yet_better")
    ttft = outcome(found, "time_to_first_token")
    assert ttft["low"] < 0 < ttft["high"]


def test_a_fleet_all_in_treatment(scene):
    fleet = Fleet(scene, count=20)
    fleet.store(BETTER)
    found = reported(fleet)
    says = "All 20 deployments are treated: without concurrent controls there is no comparison."
    assert said(found) == ("waiting", "no_controls", says)
    assert found["outcomes"] == []


@pytest.mark.parametrize("effects", [{}, BETTER], ids=["no effect", "an effect of the block size alone"])
def test_all_treated_at_block_64_and_all_controls_at_16_are_not_comparable_and_never_better(scene, effects):
    dealt = sorted((f"c/ns/{number:02}" for number in range(20)), key=lambda name: bucket("arm", name))
    fleet = Fleet(scene, facts_of=lambda name: {"block_size": 64 if name in dealt[:10] else 16})
    assert [fleet.treated(name) for name in dealt] == [True] * 10 + [False] * 10
    fleet.store(effects)
    found = reported(fleet)
    assert (found["verdict"]["state"], found["verdict"]["reason"]) == ("invalid", "not_comparable")
    assert found["verdict"]["why"][0].startswith("The arms are not comparable: no stratum holds both")
    assert "block 64" in found["verdict"]["why"][0]
    assert (found["verdict"]["scope"], found["evidence"]["unmatched"]) == ([], 10)
    assert {one["verdict"] for one in found["strata"]} == {"insufficient"}


def test_inter_token_latency_10_percent_worse_with_time_to_first_token_30_percent_better_on_30_treated(scene):
    fleet = Fleet(scene, 60)
    fleet.store({Name.TTFT: -0.3, Name.ITL: 0.1})
    found = reported(fleet)
    state, reason, why = said(found)
    assert (state, reason) == ("regression", "inter_token_latency")
    assert why.startswith("Inter token latency got worse: +10")
    assert found["evidence"]["events"] == {"treatment": 30, "control": 30}
    assert outcome(found, "time_to_first_token")["standing"] == "met"
