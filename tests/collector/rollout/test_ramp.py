# SPDX-License-Identifier: Apache-2.0
"""Ramps: steps that advance on time, sample, analysis and approval; guardrails with evidence; crashes, odd clocks."""

import itertools
import time
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from sqlalchemy import event

from kvflags.errors import Conflict, ErrorCode, UsageError
from kvflags.flags import Phase, Step, Target
from kvflags_collector.judge.conclude import conclude
from kvflags_collector.rollout import audit, course, flags, ramp, status
from kvflags_collector.rollout.guard import Act, Finding
from kvflags_collector.store.rollup_tables import rollups_minute
from kvflags_collector.times import SECOND, from_rfc3339, rfc3339

KEY = "cross-layer-blocks"
DAY = 86_400
WHO = {"author": "ann", "reason": "because"}
COUNTS = (Step(Target(count=1), DAY), Step(Target(count=2), DAY), Step(Target(count=3), DAY))


def plan(fleet, steps=COUNTS, **more):
    with fleet.db.write() as conn:
        return ramp.plan(conn, KEY, steps, **WHO, now=fleet.now, **more)


def advance(fleet, guards=()):
    with fleet.db.write() as conn:
        return ramp.advance(conn, flags.get(conn, KEY), fleet.now, guards)


def do(fleet, action, **more):
    with fleet.db.write() as conn:
        return getattr(course, action)(conn, KEY, **WHO, now=fleet.now, **more)


def treated_pairs(fleet, generation):
    """Every treated deployment is replaced, runs with whole rows, moves something in the last minute, and is judged."""
    arms = dict(fleet.rows("assignments", "deployment", "arm"))
    for name in (name for name, arm in arms.items() if arm == "treatment"):
        told = fleet.pair(name, generation)
        assert told[0]["variant"] == "on"
        for role in ("prefill", "decode"):
            beat = {"requested": "BHLNC", "resolved": "BHLNC", "regions": 1, "layers": 8, "effective": True}
            fleet.beat(f"{name}-{generation}-{role}", layout=beat)
        transfers(fleet, name, generation, fleet.now // SECOND // 60 * 60 - 60)
    conclude(fleet.db, fleet.now)


def transfers(fleet, deployment, generation, second, number=100, failed=0):
    """A minute of the treatment arm as the roller writes it; everything that is not asked here is zero."""
    zeros = {
        column.name: {int: 0, float: 0.0, bytes: b"", object: {}, str: ""}[column.type.python_type]
        for column in rollups_minute.columns
        if not (column.nullable or column.name in {"transfers", "failed"})
    }
    where = {"minute_us": second * SECOND, "deployment": deployment, "generation": generation, "arm": "treatment"}
    with fleet.db.write() as conn:
        conn.execute(rollups_minute.insert().values(**zeros | where, transfers=number, failed=failed))


@pytest.fixture
def three(fleet):
    fleet.create()
    for name in ("c/ns/a", "c/ns/b", "c/ns/c"):
        fleet.pair(name)
    return fleet


def test_the_first_step_is_entered_by_the_next_tick(three):
    assert plan(three).phase == Phase.RUNNING
    three.tick()
    flag = three.ask(flags.get, KEY)
    assert (flag.target, flag.ramp.at) == (Target(count=1), 0)


def test_a_step_waits_for_time_sample_and_analysis_and_says_so(three):
    plan(three)
    advance(three)
    waits = three.ask(status.status, KEY, three.now)["ramp"]["waiting_for"]
    assert waits == [
        "time: 0 s of 1 d",
        "sample: 0 of 1 treated deployments are effective",
        "analysis: no transfer of the treatment arm was measured within the last hour",
    ]
    three.now += DAY * SECOND
    assert advance(three).ramp.at == 0
    treated_pairs(three, "g2")
    assert advance(three).ramp.at == 1
    assert advance(three).ramp.at == 1


def test_silence_never_advances(three):
    plan(three)
    advance(three)
    treated_pairs(three, "g2")
    three.now += DAY * SECOND
    for name in ("c/ns/a", "c/ns/b", "c/ns/c"):
        three.pair(name, "g2")
    assert advance(three).ramp.at == 0


def test_asleep_for_a_week_it_enters_one_step_whose_time_begins_then(three):
    plan(three)
    advance(three)
    three.now += 7 * DAY * SECOND
    treated_pairs(three, "g2")
    for _ in range(3):
        assert advance(three).ramp.at == 1
    assert three.ask(flags.get, KEY).ramp.since_us == three.now


@pytest.mark.parametrize("change", ["2027-03-28T01:00:00Z", "2027-10-31T01:00:00Z"])
def test_a_day_has_24_hours_also_where_the_clocks_of_people_change(fleet, monkeypatch, change):
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    fleet.now = from_rfc3339(change) - 6 * 3600 * SECOND
    fleet.create()
    for name in ("c/ns/a", "c/ns/b", "c/ns/c"):
        fleet.pair(name)
    plan(fleet)
    entered = advance(fleet).ramp.since_us
    fleet.now += (DAY - 1) * SECOND
    treated_pairs(fleet, "g2")
    assert advance(fleet).ramp.at == 0
    fleet.now += SECOND
    assert advance(fleet).ramp.at == 1
    assert rfc3339(entered) == rfc3339(from_rfc3339(change) - 6 * 3600 * SECOND)
    monkeypatch.undo()
    time.tzset()


def test_a_clock_that_was_set_back_gives_the_step_all_of_its_time(three):
    plan(three)
    advance(three)
    treated_pairs(three, "g2")
    three.now -= 3600 * SECOND
    assert advance(three).ramp.at == 0
    assert three.ask(status.status, KEY, three.now)["ramp"]["waiting_for"][0] == "time: 0 s of 1 d"


def test_a_step_with_approval_is_never_entered_by_itself(three):
    plan(three, (Step(Target(count=1), 0), Step(Target(count=2), 0, approval=True)))
    advance(three)
    treated_pairs(three, "g2")
    assert advance(three).ramp.at == 0
    revision = three.ask(flags.get, KEY).revision
    three.change("kill_switch", on=True)
    with pytest.raises(Conflict) as refused:
        do(three, "promote", revision=revision)
    assert refused.value.code == ErrorCode.STALE_REVISION
    assert do(three, "promote").ramp.at == 1
    with pytest.raises(Conflict):
        do(three, "promote")


def test_while_a_ramp_steers_nobody_else_does(three):
    plan(three)
    before = three.everything()
    with pytest.raises(Conflict, match="a ramp steers"):
        three.aim(percent=50)
    assert three.everything() == before
    plan(three, None)
    three.aim(percent=50)


@pytest.mark.parametrize("phase", ["paused", "aborted"])
def test_what_is_stopped_does_not_advance(three, phase):
    plan(three)
    advance(three)
    do(three, "pause") if phase == "paused" else three.change("abort")
    three.now += 2 * DAY * SECOND
    assert advance(three).ramp.at == 0


@pytest.mark.parametrize(
    "steps",
    [(), (Step(Target(count=2), 0), Step(Target(count=2), 0)), (Step(Target(count=1), 0), Step(Target(share=5), 0))],
)
def test_a_ramp_that_does_not_grow_is_refused(three, steps):
    with pytest.raises(UsageError):
        plan(three, steps)


def test_the_circuit_breaker_takes_a_broken_deployment_out_and_holds_the_rest(three):
    plan(three)
    advance(three)
    treated_pairs(three, "g2")
    [name] = [name for name, arm in three.rows("assignments", "deployment", "arm") if arm == "treatment"]
    three.now = (three.now // (600 * SECOND) + 2) * 600 * SECOND
    second = three.now // SECOND
    transfers(three, name, "g2", second - 600, 1000, 60)
    transfers(three, name, "g2", second - 240, 1000, 50)
    flag = advance(three, ramp.GUARDS)
    assert flag.phase == Phase.PAUSED
    newest = three.ask(audit.history, KEY)
    stopped = next(one for one in newest if one["action"] == "guardrail_hold")
    assert (stopped["author"], stopped["reason"]) == ("kvflags", "110 of 2000 transfers failed within 10 minutes")
    [finding] = stopped["evidence"]["findings"]
    assert (finding["value"], finding["limit"], finding["n"], finding["interval"]) == (0.055, 0.01, 2000, None)
    assert three.rows("opts", "deployment", "opted") == [(name, "out")]
    joined = three.register("joiner", name, "g2", "decode")
    assert (joined["variant"], joined["state"]) == ("on", "condemned")
    assert three.pair(name, "g3")[0]["reason"] == "opt_out"


@pytest.mark.parametrize(
    ("first", "second"), [((1000, 60), (1000, 49)), ((10_000, 60), (10_000, 60)), ((0, 0), (9, 9))]
)
def test_a_bad_minute_or_few_errors_are_no_broken_deployment(three, first, second):
    plan(three)
    advance(three)
    treated_pairs(three, "g2")
    three.now = (three.now // (600 * SECOND) + 2) * 600 * SECOND
    at = three.now // SECOND
    transfers(three, "c/ns/a", "g2", at - 600, *first)
    transfers(three, "c/ns/a", "g2", at - 240, *second)
    assert advance(three, ramp.GUARDS).phase == Phase.RUNNING


def test_a_finding_about_the_fleet_ends_the_rollout(three):
    plan(three)
    advance(three)
    treated_pairs(three, "g2")
    finding = Finding(
        metric="errors", value=3.1, limit=3.0, n=9, says="error ratio above 3", act=Act.ABORT, interval=(3.0, 3.2)
    )
    assert advance(three, [lambda *_: [finding]]).phase == Phase.ABORTED
    assert {row for row in three.rows("pins", "variant", "state") if row[0] == "on"} == {("on", "condemned")}


def test_a_crash_between_any_two_statements_leaves_a_step_to_go_on_from(three):
    plan(three)
    advance(three)
    three.now += DAY * SECOND
    treated_pairs(three, "g2")
    before = three.everything()
    for number in itertools.count(1):
        with killed_at(three.db, number) as was_killed:
            advance(three)
        if not was_killed:
            break
        assert three.everything() == before
    assert number > 5
    assert three.ask(flags.get, KEY).ramp.at == 1


@contextmanager
def killed_at(db, number):
    """The process dies before its n-th statement; what is yielded is not empty where it got that far."""
    seen, killed = itertools.count(1), []

    def die(*_):
        if next(seen) == number:
            killed.append(number)
            raise KeyboardInterrupt

    event.listen(db.engine, "before_cursor_execute", die)
    try:
        with suppress(KeyboardInterrupt):
            yield killed
    finally:
        event.remove(db.engine, "before_cursor_execute", die)


def test_the_default_keeps_a_last_holdback_for_two_weeks_and_then_completes(three):
    three.aim(percent=50)
    made = do(three, "make_default")
    assert (made.target, made.holdback) == (Target(share=100_000), 5_000)
    three.now += 13 * DAY * SECOND
    assert advance(three).phase == Phase.RUNNING
    three.now += DAY * SECOND
    completed = advance(three)
    assert (completed.phase, completed.ramp) == (Phase.COMPLETED, None)
    assert three.pair("c/ns/a", "g9")[0]["reason"] == "completed"


def test_what_was_held_back_gets_the_default_too(three):
    # Before anybody is dealt: what was treated is released, not held back.
    with three.db.write() as conn:
        flags.revise(conn, replace(flags.get(conn, KEY), held_back=("c/ns/a",)), "hold_back", **WHO, now=three.now)
    three.aim(percent=50)
    do(three, "make_default")
    assert three.pair("c/ns/a", "g8")[0]["reason"] == "holdback"
    three.now += 14 * DAY * SECOND
    advance(three)
    told = three.pair("c/ns/a", "g9")[0]
    assert (told["variant"], told["reason"], told["arm"]) == ("on", "completed", None)
