# SPDX-License-Identifier: Apache-2.0
"""What was declared with a flag, acted on: criteria by what is stored, and an expired flag that goes no further."""

import pytest

from kvflags.errors import UsageError
from kvflags.flags import Phase, Step, Target
from kvflags_collector.rollout import course, flags, ramp, spec, status
from kvflags_collector.rollout.graduation import graduation
from kvflags_collector.rollout.guard import Act, Finding
from kvflags_collector.times import SECOND

KEY = "cross-layer-blocks"
DAY_US = 86_400 * SECOND
WHO = {"author": "ann", "reason": "because"}
ALL = ("treated >= 1", "control >= 1", "days >= 3", "days_at_100 >= 2", "alarms = 0", "verdict = ready")
# The fleets' clock begins on 2027-01-15.
LAST_DAY = "2027-01-16"
AT_ONCE = (Step(Target(count=1), 0), Step(Target(count=2), 0))


def _standing(fleet, scope=()):
    found = fleet.ask(lambda conn: graduation(conn, flags.get(conn, KEY), fleet.now, scope))
    return {one["says"]: one["met"] for one in found["criteria"]}


def _says(fleet, criterion):
    found = fleet.ask(lambda conn: graduation(conn, flags.get(conn, KEY), fleet.now, ()))
    return next(one["detail"] for one in found["criteria"] if one["says"] == criterion)


def _effective(fleet, name, generation):
    fleet.pair(name, generation)
    for role in ("prefill", "decode"):
        beat = {"requested": "BHLNC", "resolved": "BHLNC", "regions": 1, "layers": 8, "effective": True}
        fleet.beat(f"{name}-{generation}-{role}", layout=beat)


@pytest.fixture
def two(fleet):
    fleet.create(criteria=ALL, expires=LAST_DAY)
    for name in ("c/ns/a", "c/ns/b"):
        fleet.pair(name)
    return fleet


def test_each_criterion_by_what_is_stored(two):
    assert _standing(two) == dict.fromkeys(ALL, False) | {"alarms = 0": True}
    two.aim(count=1)
    treated = next(name for name, arm in two.rows("assignments", "deployment", "arm") if arm == "treatment")
    _effective(two, treated, "g2")
    assert _standing(two, scope=["H100"]) == {
        "treated >= 1": True,
        "control >= 1": True,
        "days >= 3": False,
        "days_at_100 >= 2": False,
        "alarms = 0": True,
        "verdict = ready": True,
    }
    two.now += 3 * DAY_US
    assert _standing(two)["days >= 3"] is True
    assert _says(two, "days >= 3") == "days since the first deployment was treated: 3"


def test_days_at_100_begin_anew_after_every_other_aim(two):
    two.aim(percent=100)
    two.now += 3 * DAY_US
    assert _standing(two)["days_at_100 >= 2"] is True
    two.aim(percent=50)
    assert _says(two, "days_at_100 >= 2") == "days for which the target has been 100 %: 0"
    two.aim(percent=100)
    two.now += DAY_US
    assert _says(two, "days_at_100 >= 2") == "days for which the target has been 100 %: 1"
    two.aim(percent=0, backend="TRITON_ATTN")
    assert _standing(two)["days_at_100 >= 2"] is False


def test_the_status_says_it_without_the_verdict(two):
    found = two.ask(status.status, KEY, two.now)["graduation"]
    assert ([one["met"] for one in found["criteria"]].count(True), found["expires"], found["expired"]) == (
        1,
        LAST_DAY,
        False,
    )
    assert found["criteria"][-1] == {
        "says": "verdict = ready",
        "met": None,
        "detail": "the verdict was not asked for here; the report has it",
    }


def test_what_no_machine_can_judge_is_refused(fleet):
    with pytest.raises(UsageError, match="'no regression' is no criterion"):
        fleet.create(criteria=("no regression",))
    fleet.create()
    with fleet.db.write() as conn, pytest.raises(UsageError, match="is no criterion"):
        spec.apply(conn, KEY, "cross_layer_blocks", {"criteria": ["errors < 3"]}, **WHO, now=fleet.now)


def test_the_ramp_of_an_expired_flag_takes_no_step_by_itself_until_it_is_extended(two):
    with two.db.write() as conn:
        ramp.plan(conn, KEY, AT_ONCE, **WHO, now=two.now)
    two.now += 2 * DAY_US
    two.tick()
    flag = two.ask(flags.get, KEY)
    assert (flag.phase, flag.ramp.at) == (Phase.RUNNING, -1)
    shown = two.ask(status.status, KEY, two.now)
    assert shown["graduation"]["expired"]
    assert shown["flag"]["expired"]
    assert shown["ramp"]["waiting_for"] == [
        f"expiry: it expired on {LAST_DAY}; kvflags flags extend {KEY} --expires DAY"
    ]
    two.change("extend", "2027-03-01")
    two.tick()
    assert two.ask(flags.get, KEY).ramp.at == 0


def test_an_expired_flag_can_be_promoted_by_hand_and_its_guards_stay_armed(two):
    with two.db.write() as conn:
        ramp.plan(conn, KEY, AT_ONCE, **WHO, now=two.now)
    two.now += 2 * DAY_US
    with two.db.write() as conn:
        assert course.promote(conn, KEY, **WHO, now=two.now).ramp.at == 0
        finding = Finding(metric="m", value=2.0, limit=1.0, n=9, says="too much", act=Act.ABORT)
        stopped = ramp.advance(conn, flags.get(conn, KEY), two.now, [lambda *_: [finding]])
    assert stopped.phase == Phase.ABORTED


def test_a_flag_is_extended_once_and_not_into_the_past(two):
    assert two.change("extend", "2027-06-01").revision == 2
    assert two.change("extend", "2027-06-01").revision == 2
    assert two.change("extend", None).expires is None
    with pytest.raises(UsageError, match="2027-01-01 is over"):
        two.change("extend", "2027-01-01")
