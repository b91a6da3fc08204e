# SPDX-License-Identifier: Apache-2.0
"""The life of a flag: revisions, stale writers, phases, assignments; and that what is refused changes nothing."""

import pytest

from kvflags.errors import Conflict, ErrorCode, NotFound, UsageError
from kvflags.flags import Phase
from kvflags_collector.rollout import flags, status

KEY = "cross-layer-blocks"


def revisions(fleet):
    return fleet.rows("flag_revisions", "revision", "action", "author", "reason")


def assigned(fleet):
    return fleet.rows("assignments", "deployment", "arm", "comparison", "reason", "ever_treated")


def arms(fleet):
    return {row[0]: row[1] for row in assigned(fleet)}


def some(fleet, number):
    for index in range(number):
        fleet.pair(f"c/ns/{index}")


def test_every_change_is_a_revision_with_author_and_reason(fleet):
    fleet.create(author="ann", reason="let us see")
    fleet.aim(percent=25, author="bob", reason="start")
    fleet.aim(count=2, backend="FLASH_ATTN", author="bob", reason="careful there")
    fleet.aim(backend="FLASH_ATTN", reason="as the others")
    fleet.change("kill_switch", on=True, author="cyd", reason="smoke")
    fleet.change("kill_switch", on=True, author="cyd", reason="again")
    fleet.change("kill_switch", on=False, reason="no smoke")
    fleet.change("abort", reason="enough")
    fleet.change("abort", reason="twice")
    fleet.change("start", reason="once more")
    assert revisions(fleet) == [
        (1, "create", "ann", "let us see"),
        (2, "set_target", "bob", "start"),
        (3, "set_target", "bob", "careful there"),
        (4, "set_target", "ann", "as the others"),
        (5, "kill_switch_on", "cyd", "smoke"),
        (6, "kill_switch_off", "ann", "no smoke"),
        (7, "abort", "ann", "enough"),
        (8, "start", "ann", "once more"),
    ]
    documents = [row[0] for row in fleet.rows("flag_revisions", "document")]
    assert [document["target"] for document in documents[:2]] == [None, {"share": 25_000, "count": None}]
    assert documents[2]["overrides"] == {"FLASH_ATTN": {"share": None, "count": 2}}
    assert documents[-1] == fleet.rows("flags", "document")[0][0]


def test_a_target_starts_a_draft(fleet):
    assert fleet.create().phase == Phase.DRAFT
    assert fleet.aim(percent=0).phase == Phase.RUNNING


def test_a_flag_is_shown_with_its_last_change(fleet):
    flag = fleet.create()
    assert fleet.ask(flags.shown, KEY, fleet.now) == {
        **flag.to_json(),
        "expired": False,
        "created_at": "2027-01-15T08:00:00.000000Z",
        "updated_at": "2027-01-15T08:00:00.000000Z",
        "last_change": {"action": "create", "author": "ann", "reason": "try it"},
    }


def test_two_flags_have_different_salts(fleet):
    flag = fleet.create()
    assert flag.salt_arm != flag.salt_enrolment
    assert len(flag.salt_arm) == 16


@pytest.mark.parametrize(
    ("act", "error", "code"),
    [
        (lambda f: f.create(), Conflict, ErrorCode.FLAG_EXISTS),
        (lambda f: f.create(key="other"), Conflict, ErrorCode.FEATURE_TAKEN),
        (lambda f: f.create(key="other", feature="warp"), UsageError, ErrorCode.INVALID),
        (lambda f: f.aim(percent=-0.1), UsageError, ErrorCode.INVALID),
        (lambda f: f.aim(percent=-0.0001), UsageError, ErrorCode.INVALID),
        (lambda f: f.aim(percent=100.1), UsageError, ErrorCode.INVALID),
        (lambda f: f.aim(percent=float("nan")), UsageError, ErrorCode.INVALID),
        (lambda f: f.aim(percent=float("inf")), UsageError, ErrorCode.INVALID),
        (lambda f: f.aim(count=-1), UsageError, ErrorCode.INVALID),
        (lambda f: f.aim(percent=5, count=1), UsageError, ErrorCode.INVALID),
        (lambda f: f.aim(), UsageError, ErrorCode.INVALID),
        (lambda f: f.aim(percent=5, backend="flash_attn"), UsageError, ErrorCode.UNKNOWN_BACKEND),
        (lambda f: f.aim(percent=5, key="nope"), NotFound, ErrorCode.UNKNOWN_FLAG),
        (lambda f: f.aim(percent=5, revision=1), Conflict, ErrorCode.STALE_REVISION),
        (lambda f: f.change("kill_switch", on=True, revision=7), Conflict, ErrorCode.STALE_REVISION),
        (lambda f: f.change("abort", revision=1), Conflict, ErrorCode.STALE_REVISION),
        (lambda f: f.change("abort", key="nope"), NotFound, ErrorCode.UNKNOWN_FLAG),
    ],
)
def test_what_is_refused_changes_nothing(fleet, act, error, code):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=10)
    before = fleet.everything()
    with pytest.raises(error) as refused:
        act(fleet)
    assert refused.value.code == code
    assert refused.value.hint
    assert fleet.everything() == before


def test_an_unknown_backend_is_answered_with_the_known_ones(fleet):
    fleet.create()
    with pytest.raises(UsageError) as refused:
        fleet.aim(percent=5, backend="FLASH")
    assert refused.value.message == "there is no attention backend 'FLASH'"
    assert "FLASH_ATTN, FLASH_ATTN_MLA, FLEX_ATTENTION" in refused.value.hint


def test_a_stopped_flag_is_not_started_by_a_target(fleet):
    fleet.create()
    fleet.aim(percent=10)
    fleet.change("abort")
    with pytest.raises(Conflict) as refused:
        fleet.aim(percent=50)
    assert refused.value.code == ErrorCode.WRONG_PHASE


def test_a_count_treats_that_many_and_the_rest_is_control(fleet):
    fleet.create()
    some(fleet, 5)
    fleet.aim(count=2)
    assert sorted(arms(fleet).values()) == ["control"] * 3 + ["treatment"] * 2
    fleet.aim(count=4)
    assert sorted(arms(fleet).values()) == ["control"] + ["treatment"] * 4


def test_raising_adds_and_lowering_releases_out_of_the_comparison(fleet):
    fleet.create()
    some(fleet, 6)
    fleet.aim(percent=50)
    treated = {name for name, arm in arms(fleet).items() if arm == "treatment"}
    fleet.aim(percent=100)
    assert set(arms(fleet).values()) == {"treatment"}
    fleet.aim(percent=50)
    after = {row[0]: row[1:] for row in assigned(fleet)}
    for name, row in after.items():
        kept = ("treatment", "included", "assigned", True)
        assert row == (kept if name in treated else (None, "excluded", "released", True))


def test_a_backend_has_its_own_target(fleet):
    fleet.create()
    fleet.pair("c/ns/flash")
    for role in ("prefill", "decode"):
        fleet.register(role, "c/ns/triton", role=role)
        fleet.beat(role, facts={"backend": "TRITON_ATTN"})
    fleet.aim(percent=0, backend="TRITON_ATTN")
    fleet.aim(percent=100)
    assert arms(fleet) == {"c/ns/flash": "treatment", "c/ns/triton": "control"}
    fleet.aim(backend="TRITON_ATTN")
    assert arms(fleet) == {"c/ns/flash": "treatment", "c/ns/triton": "treatment"}


def test_a_newcomer_is_assigned_by_the_tick_and_evicts_nobody(fleet):
    fleet.create()
    some(fleet, 3)
    fleet.aim(count=1)
    before = arms(fleet)
    fleet.pair("c/ns/new")
    fleet.tick()
    assert arms(fleet) == before | {"c/ns/new": "control"}
    fleet.change("abort")
    fleet.pair("c/ns/newer")
    fleet.tick()
    assert "c/ns/newer" not in arms(fleet)


def test_a_count_is_not_used_up_by_deployments_that_are_gone(fleet):
    fleet.create()
    some(fleet, 1)
    fleet.aim(count=1)
    assert arms(fleet) == {"c/ns/0": "treatment"}
    fleet.now += 2 * 86_400 * 1_000_000
    fleet.pair("c/ns/new")
    fleet.aim(count=1)
    assert arms(fleet) == {"c/ns/0": None, "c/ns/new": "treatment"}


def test_a_place_is_kept_through_a_restart_with_other_facts(fleet):
    fleet.create(baseline_s=60)
    some(fleet, 1)
    fleet.passes(60, beating=("c/ns/0-g1-prefill", "c/ns/0-g1-decode"))
    fleet.aim(count=1)
    fleet.pair("c/ns/0", "g2", facts={"vllm": "0.32.1"})
    fleet.aim(count=1)
    assert arms(fleet) == {"c/ns/0": "treatment"}


def test_status_shows_what_is_real_beside_the_target(fleet):
    fleet.create()
    some(fleet, 2)
    fleet.aim(count=1)
    treated = next(name for name, arm in arms(fleet).items() if arm == "treatment")
    fleet.pair(treated, "g2")
    fleet.change("kill_switch", on=True)
    answer = fleet.ask(status.status, KEY, fleet.now)
    assert answer["flag"] == fleet.ask(flags.shown, KEY, fleet.now)
    assert answer["target"] == {"default": str(flags.target(None, 1)), "overrides": {}}
    assert answer["realised"] == {"eligible": 2, "enrolled": 2, "treated": 1, "control": 1, "share": 0.5}
    assert answer["alarms"] == []
    off = {"epoch": 1, "variant": "off", "arm": None, "comparison": "excluded", "excluded_because": None}
    on = {"epoch": 1, "variant": "on", "arm": "treatment", "comparison": "included", "excluded_because": None}
    assert next(item for item in answer["deployments"] if item["deployment"] == treated) == {
        "deployment": treated,
        "arm": "treatment",
        "comparison": "included",
        "reason": "assigned",
        "bucket": fleet.rows("assignments", "bucket")[int(treated[-1])][0],
        "generations": [
            {"generation": "g1", **off, "state": "pinned", "reason": "phase_draft", "condemned_reason": None}
            | {"live_engines": 2, "to_replace": 0},
            {"generation": "g2", **on, "state": "condemned", "reason": "assigned", "condemned_reason": "kill_switch"}
            | {"live_engines": 2, "to_replace": 2},
        ],
        "pending": "off",
        "treated_engines": 2,
    }
