# SPDX-License-Identifier: Apache-2.0
"""The verdict's guardrails, from stored hours to what the ramper's tick does to a rollout, each with its evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import delete, select
from stored_fleet import DAY_US, HOUR_US, Fleet

from kvflags.flags import Phase
from kvflags.telemetry.instruments import InstrumentName as Name
from kvflags_collector.judge.conclude import conclude
from kvflags_collector.rollout import audit, course, flags, judged, ramp, standing
from kvflags_collector.rollout.guard import Act, Finding, fresh
from kvflags_collector.store.control_tables import opts, pins
from kvflags_collector.store.frozen_tables import frozen_blocks, judgements

WHO = {"author": "ann", "reason": "looked"}
EVENT_AT = 7 * 24


def stopped(fleet, action):
    """The one finding that the newest automatic change acted on."""
    with fleet.scene.db.read() as conn:
        newest = [one for one in audit.history(conn, fleet.scene.key) if one["action"] == action]
    assert newest, action
    assert newest[0]["author"] == "kvflags"
    return newest[0]["evidence"]["findings"]


def states(fleet):
    """{deployment: state} of what runs with the feature on."""
    query = select(pins.c.deployment, pins.c.state).where(pins.c.variant == "on", pins.c.closed_us.is_(None))
    with fleet.scene.db.read() as conn:
        return dict(map(tuple, conn.execute(query)))


def latest(fleet):
    with fleet.scene.db.read() as conn:
        return judged.latest(conn, fleet.scene.key)


def resume(fleet):
    with fleet.scene.db.write() as conn:
        course.resume(conn, fleet.scene.key, **WHO, now=fleet.scene.now)


def test_decode_that_pays_ends_the_rollout_with_value_limit_number_and_interval(fleet):
    fleet.store({Name.TTFT: -0.3, Name.ITL: 0.1})
    fleet.judge_at(4.2)
    _only_a_fresh_verdict_counts(fleet)
    assert fleet.acts(4.2).phase == Phase.ABORTED
    [found] = stopped(fleet, "guardrail_abort")
    assert (found["metric"], found["act"], found["deployment"]) == ("inter_token_latency", "abort", None)
    assert found["value"] == pytest.approx(0.1, abs=0.01)
    assert found["limit"] == pytest.approx(0.03)
    assert found["n"] == 10
    low, high = found["interval"]
    assert 0.03 < low < found["value"] < high
    assert "limit <+3%" in found["says"]
    assert set(states(fleet).values()) == {"condemned"}
    _started_again_it_is_stopped_by_new_evidence_only(fleet)


def _only_a_fresh_verdict_counts(fleet):
    """What nobody renews stops nothing and lets nothing go on."""
    scene = fleet.scene
    with scene.db.read() as conn:
        assert judged.lacking(conn, scene.key, scene.now) == "the verdict was not yet asked for"
    assert conclude(scene.db, scene.now) == 1
    with scene.db.read() as conn:
        assert judged.lacking(conn, scene.key, scene.now) == "the verdict is regression (inter_token_latency)"
        late = scene.now + 2 * HOUR_US
        assert judged.findings(conn, fleet.flag(), late) == []
        assert judged.lacking(conn, scene.key, late) == "the verdict is 2 h old"


def _started_again_it_is_stopped_by_new_evidence_only(fleet):
    scene = fleet.scene
    with scene.db.write() as conn:
        flags.start(conn, scene.key, **WHO, now=scene.now)
    assert fleet.acts(4.3).phase == Phase.RUNNING
    with scene.db.read() as conn:
        [again] = judged.findings(conn, fleet.flag(), scene.now)
        assert fresh(conn, fleet.flag(), [again]) == []
        later = replace(again, window=(again.window[0], "2027-02-01T00:00:00.000000Z"))
        assert fresh(conn, fleet.flag(), [later]) == [later]


def _broken_from(fleet, victim, hours=0):
    """One deployment whose transfers fail often from some hours after the event on."""
    return lambda name, number: 40 if name == victim and number > EVENT_AT + hours else 0


def test_one_deployment_that_fails_is_taken_out_within_days_and_the_ramp_holds(fleet):
    victim = next(name for name in fleet.names if fleet.treated(name))
    fleet.store(failed=_broken_from(fleet, victim))
    # Two days: no horizon is over yet, only blocks of six hours are.
    flag = fleet.acts(2.2)
    assert (flag.phase, fleet.frozen()) == (Phase.PAUSED, [])
    [found] = stopped(fleet, "guardrail_hold")
    assert (found["metric"], found["deployment"], found["act"]) == ("error_guard", victim, "take_out")
    assert found["value"] > found["limit"] == 20
    assert found["n"] == 100 * 8 * 6
    with fleet.scene.db.read() as conn:
        assert conn.execute(select(opts.c.deployment, opts.c.opted)).all() == [(victim, "out")]
    assert {name for name, state in states(fleet).items() if state == "condemned"} == {victim}
    assert latest(fleet)["state"] == "hold"
    # Whoever lets it go on has seen it, and is not stopped by it again.
    resume(fleet)
    assert fleet.acts(2.3).phase == Phase.RUNNING
    found = latest(fleet)
    assert (found["state"], found["document"]["actions"]) == ("waiting", [])
    assert found["document"]["returned"] == [victim]


def test_blocks_are_written_once_an_hour_after_each_and_not_for_what_has_no_before(scene):
    fleet = Fleet(scene, 4)
    fleet.store()

    def written():
        with scene.db.read() as conn:
            return len(conn.execute(select(frozen_blocks)).all())

    # The first hour after the event begins 30 minutes to 90 minutes after it, so 8.5 hours hold one block.
    fleet.judge_at(6 / 24)
    assert written() == 0
    fleet.judge_at(8.6 / 24)
    assert written() == 4 * 29
    fleet.judge_at(8.7 / 24)
    assert written() == 4 * 29
    fleet.judge_at(1)
    assert written() == 4 * (28 + 3)
    scene.starts("c/ns/new", "r1")
    fleet.judge_at(2)
    with scene.db.read() as conn:
        assert set(conn.scalars(select(frozen_blocks.c.deployment))) == set(fleet.names)


def _gpu(name):
    return {"gpu": "B200" if int(name[-2:]) % 2 else "H100"}


def _two_strata(scene):
    """40 deployments, half of them on each GPU; the treatment is bad for one of them alone."""
    fleet = Fleet(scene, 40, facts_of=_gpu)
    bad = {name for name in fleet.names if _gpu(name)["gpu"] == "B200"}
    fleet.store(of=lambda name: {Name.TTFT: 0.5 if name in bad else -0.5})
    return fleet, bad


def test_a_stratum_that_gets_worse_is_rolled_back_and_the_others_go_on(scene):
    fleet, bad = _two_strata(scene)
    flag = fleet.acts(4.2)
    stratum = "FLASH_ATTN, B200, gqa, vLLM 0.32, 4 heads, block 16"
    assert (flag.phase, flag.rolled_back) == (Phase.RUNNING, (stratum,))
    [found] = stopped(fleet, "guardrail_roll_back")
    assert (found["metric"], found["stratum"], found["act"]) == ("time_to_first_token", stratum, "roll_back")
    assert 0 < found["interval"][0] < found["value"]
    condemned = {name for name, state in states(fleet).items() if state == "condemned"}
    assert condemned == {name for name in bad if fleet.treated(name)}
    with scene.db.read() as conn:
        ruled = {name: standing.rule(conn, flag, name, scene.now) for name in sorted(condemned)[:2]}
        good = next(name for name in fleet.names if name not in bad and fleet.treated(name))
        assert standing.rule(conn, flag, good, scene.now).variant == "on"
    assert {one.variant for one in ruled.values()} == {"off"}
    # What is rolled back holds nobody else up.
    assert latest(fleet)["state"] != "hold"
    with scene.db.write() as conn:
        back = course.undo(conn, scene.key, **WHO, now=scene.now)
    assert back.rolled_back == ()


def test_one_deployment_that_is_worse_by_itself_holds_until_somebody_has_looked(scene):
    fleet = Fleet(scene, 36)
    victim = next(name for name in fleet.names if fleet.treated(name))
    fleet.store(of=lambda name: {Name.TTFT: 1.0} if name == victim else {})
    assert fleet.acts(4.2).phase == Phase.PAUSED
    [found] = [one for one in stopped(fleet, "guardrail_hold") if one["deployment"] == victim]
    assert (found["metric"], found["act"], found["n"]) == ("deployment", "hold", 18)
    assert 0 < found["interval"][0] < found["value"]
    assert "beyond what 18 controls do by themselves" in found["says"]
    # It stays in its arm: one that is slower for a reason of its own is no harm that the feature did.
    assert set(states(fleet).values()) == {"pinned"}
    resume(fleet)
    assert fleet.acts(4.3).phase == Phase.RUNNING
    assert latest(fleet)["state"] != "hold"


def test_a_verdict_is_written_when_it_changes_and_else_only_renewed(fleet):
    fleet.store({Name.TTFT: -0.3})
    flag = fleet.acts(4.2)
    assert (flag.phase, latest(fleet)["document"]["actions"]) == (Phase.RUNNING, [])
    assert set(states(fleet).values()) == {"pinned"}
    with fleet.scene.db.write() as conn:
        conn.execute(delete(judgements))
    assert [conclude(fleet.scene.db, fleet.scene.now + number) for number in range(3)] == [1, 0, 0]
    with fleet.scene.db.read() as conn:
        [row] = conn.execute(select(judgements)).mappings()
    assert (row["recorded_us"], row["checked_us"]) == (fleet.scene.now, fleet.scene.now + 2)
    fleet.scene.now = fleet.event_us + 10 * DAY_US
    assert conclude(fleet.scene.db, fleet.scene.now) == 1
    assert latest(fleet)["state"] == "ready"


def test_a_finding_stored_before_there_were_acts_is_still_known(scene):
    scene.starts("c/ns/a", "r1")
    scene.aim(count=1)
    old = {"metric": "transfer_errors", "value": 1.0, "limit": 0.01, "n": 9, "says": "x", "deployment": "c/ns/a"}
    old |= {"interval": None, "window": ["2027-01-02T12:00:00Z", None]}
    with scene.db.write() as conn:
        flag = flags.get(conn, scene.key)
        flags.revise(conn, flag, "guardrail_hold", **WHO, now=scene.now, evidence={"findings": [old]})
        given = {name: value for name, value in old.items() if name != "window"}
        seen = Finding(**given, act=Act.TAKE_OUT, window=("2027-01-02T12:00:00Z", None))
        assert fresh(conn, flag, [seen]) == []
    assert ramp.GUARDS[1] is judged.findings
