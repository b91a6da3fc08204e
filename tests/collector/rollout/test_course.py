# SPDX-License-Identifier: Apache-2.0
"""The course of a rollout: pause, resume, undo; and what a stale writer is told."""

import pytest

from kvflags.errors import Conflict, ErrorCode
from kvflags.flags import Phase, Target
from kvflags_collector.rollout import course

KEY = "cross-layer-blocks"


def do(fleet, action, **more):
    with fleet.db.write() as conn:
        return getattr(course, action)(conn, KEY, author="ann", reason="because", now=fleet.now, **more)


def test_a_pause_keeps_what_was_dealt_and_deals_nobody_new(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    assert do(fleet, "pause").phase == Phase.PAUSED
    assert do(fleet, "pause").revision == 3
    fleet.pair("c/ns/late")
    fleet.tick()
    assert fleet.pair(generation="g2")[0]["variant"] == "on"
    assert fleet.pair("c/ns/late", "g2")[0]["reason"] == "default"
    assert do(fleet, "resume").phase == Phase.RUNNING
    fleet.tick()
    assert fleet.pair("c/ns/late", "g3")[0]["variant"] == "on"


@pytest.mark.parametrize(("before", "action"), [("abort", "pause"), ("abort", "resume"), ("abort", "undo")])
def test_what_was_stopped_is_started_on_purpose(fleet, before, action):
    fleet.create()
    fleet.change(before)
    with pytest.raises(Conflict) as refused:
        do(fleet, action)
    assert (refused.value.code, bool(refused.value.hint)) == (ErrorCode.WRONG_PHASE, True)


def test_undo_goes_back_one_aim_at_a_time_and_forward_again(fleet):
    fleet.create()
    fleet.aim(percent=10)
    fleet.aim(percent=50)
    fleet.change("kill_switch", on=True)
    undone = do(fleet, "undo")
    assert (undone.target, undone.kill_switch, undone.revision) == (Target(share=10_000), True, 5)
    assert do(fleet, "undo").target == Target(share=50_000)
    assert do(fleet, "undo", to=2).target == Target(share=10_000)
    assert do(fleet, "undo", to=2).revision == 7


def test_there_is_nothing_before_the_first_aim(fleet):
    fleet.create()
    for refused in ({}, {"to": 9}):
        with pytest.raises(Conflict) as error:
            do(fleet, "undo", **refused)
        assert error.value.hint == f"see `kvflags rollout history {KEY}`"


def test_a_stale_writer_is_told_what_changed_and_by_whom(fleet):
    fleet.create()
    fleet.aim(percent=10, author="bob", reason="first")
    with pytest.raises(Conflict) as refused:
        fleet.aim(percent=20, revision=1)
    assert refused.value.detail == {
        "diff": [
            {"field": "phase", "was": "draft", "now": "running"},
            {"field": "target", "was": None, "now": {"share": 10_000, "count": None}},
        ],
        "since": [{"revision": 2, "action": "set_target", "author": "bob", "reason": "first"}],
    }
