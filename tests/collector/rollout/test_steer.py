# SPDX-License-Identifier: Apache-2.0
"""What an operator does to one deployment: opts, declarations, forced and reopened generations; none changes a pin."""

import pytest

from kvflags.errors import Conflict, ErrorCode, NotFound, UsageError
from kvflags_collector.feedback.signals import signals
from kvflags_collector.rollout import alarms, audit, flags, inventory, status, steer, treated
from kvflags_collector.rollout.audit import Actor
from kvflags_collector.rollout.declared import Declaration

KEY = "cross-layer-blocks"
ANN = Actor(author="ann", reason="because")
A = "c/ns/a"


def opt(fleet, opted, deployment=A):
    with fleet.db.write() as conn:
        return steer.opt(conn, KEY, deployment, opted, actor=ANN, now=fleet.now)


def declare(fleet, deployment=A, **said):
    with fleet.db.write() as conn:
        return steer.declare(conn, deployment, Declaration(**said), actor=ANN, now=fleet.now)


def force(fleet, generation="g2", variant="on", deployment=A):
    with fleet.db.write() as conn:
        return steer.force(conn, KEY, deployment, generation, variant, actor=ANN, now=fleet.now)


def reopen(fleet, generation="g2", deployment=A):
    with fleet.db.write() as conn:
        return steer.reopen(conn, KEY, deployment, generation, actor=ANN, now=fleet.now)


def under(fleet, deployment=A):
    items = fleet.ask(inventory.deployments, fleet.now)
    return next(item for item in items if item["deployment"] == deployment)["flags"][0]


@pytest.fixture
def treated_fleet(fleet):
    """Deployment a, observed off in g1, treated in g2."""
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    fleet.pair(generation="g2")
    return fleet


# Opts


def test_opting_out_condemns_what_is_on_and_its_joiners_still_agree(treated_fleet):
    fleet = treated_fleet
    assert opt(fleet, "out")
    joiner = fleet.register("joiner", generation="g2", role="decode")
    assert (joiner["variant"], joiner["state"]) == ("on", "condemned")
    assert [told["reason"] for told in fleet.pair(generation="g3")] == ["opt_out"] * 2
    assert fleet.rows("pins", "generation", "condemned_reason")[1] == ("g2", "opt_out")


def test_opting_out_twice_is_one_change(treated_fleet):
    assert opt(treated_fleet, "out")
    assert not opt(treated_fleet, "out")
    assert [entry["action"] for entry in treated_fleet.ask(audit.history, KEY)] == ["opt", "set_target", "create"]


def test_an_opt_out_outlives_the_default(treated_fleet):
    opt(treated_fleet, "out")
    with treated_fleet.db.write() as conn:
        flag = flags.get(conn, KEY)
        flags.revise(conn, flags.completed(flag), "complete", author="ann", reason="ready", now=treated_fleet.now)
    assert treated_fleet.pair(generation="g3")[0]["reason"] == "opt_out"


def test_clearing_an_opt_out_lifts_no_condemnation_and_leaves_the_comparison(treated_fleet):
    opt(treated_fleet, "out")
    opt(treated_fleet, None)
    assert treated_fleet.register("joiner", generation="g2")["state"] == "condemned"
    told = treated_fleet.pair(generation="g3")[0]
    assert (told["variant"], told["comparison"]) == ("on", "excluded")


def test_opting_in_goes_past_the_percentage_but_not_past_gates_and_holds_no_arm(fleet):
    fleet.create()
    fleet.pair()
    fleet.pair("c/ns/b", facts={"isolation": "unknown"})
    fleet.aim(percent=0)
    opt(fleet, "in")
    opt(fleet, "in", "c/ns/b")
    told = fleet.pair(generation="g2")[0]
    assert (told["variant"], told["arm"], told["comparison"], told["reason"]) == ("on", None, "excluded", "opt_in")
    assert fleet.pair("c/ns/b", "g2", facts={"isolation": "unknown"})[0]["reason"] == "gate:isolation"


def test_who_opted_in_and_left_is_no_fair_control(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=0)
    opt(fleet, "in")
    fleet.pair(generation="g2")
    opt(fleet, None)
    assert fleet.pair(generation="g3")[0]["comparison"] == "excluded"
    fleet.aim(percent=0.001)
    assert fleet.rows("assignments", "arm", "comparison", "reason") == [(None, "excluded", "released")]


def test_opting_an_unknown_deployment_is_refused_and_changes_nothing(treated_fleet):
    before = treated_fleet.everything()
    with pytest.raises(NotFound) as refused:
        opt(treated_fleet, "out", "c/ns/nobody")
    assert (refused.value.code, bool(refused.value.hint)) == (ErrorCode.UNKNOWN_DEPLOYMENT, True)
    assert treated_fleet.everything() == before


# Declarations


def test_a_declared_isolation_meets_the_gate_and_neither_waives_nor_excludes(fleet):
    fleet.create(baseline_s=3600)
    unknown = {"facts": {"isolation": "unknown"}}
    fleet.pair(**unknown)
    assert [refusal["code"] for refusal in under(fleet)["refusals"]] == ["isolation"]
    declare(fleet, isolation="recreate")
    assert under(fleet)["refusals"] == []
    assert under(fleet)["waiting_for"] == "baseline: 0 s of 1 h"
    fleet.passes(3600, beating=(f"{A}-g1-prefill", f"{A}-g1-decode"))
    fleet.aim(percent=100)
    told = fleet.pair(generation="g2", **unknown)[0]
    assert (told["variant"], told["comparison"]) == ("on", "included")


def test_engines_that_contradict_the_declared_isolation_are_refused(fleet):
    fleet.create()
    fleet.pair(facts={"isolation": "router"})
    declare(fleet, isolation="recreate")
    assert [refusal["code"] for refusal in under(fleet)["refusals"]] == ["isolation"]


def test_a_declared_number_of_engines_is_waited_for(fleet):
    fleet.create()
    fleet.register("p", role="prefill")
    declare(fleet, decode=2)
    fleet.pair()
    assert under(fleet)["waiting_for"] == "1 of 2 decode engines heartbeat"
    fleet.register("d2", role="decode")
    fleet.beat("d2")
    assert under(fleet)["waiting_for"] is None


def test_a_declared_backend_waives_the_wait_and_excludes(fleet):
    fleet.create()
    declare(fleet, "c/ns/new", backend="FLASH_ATTN", block_size=16)
    fleet.aim(percent=100)
    first = fleet.register("p1", "c/ns/new", "g1")
    assert (first["variant"], first["reason"]) == ("off", "default")
    fleet.tick()
    told = fleet.register("p2", "c/ns/new", "g2")
    assert (told["variant"], told["arm"], told["comparison"]) == ("on", "treatment", "excluded")
    assert fleet.register("d2", "c/ns/new", "g2", "decode") == told


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"prefill": 0}, ErrorCode.INVALID),
        ({"isolation": "magic"}, ErrorCode.INVALID),
        ({"backend": "FLASH"}, ErrorCode.UNKNOWN_BACKEND),
    ],
)
def test_a_wrong_declaration_is_refused_and_changes_nothing(treated_fleet, said, code):
    before = treated_fleet.everything()
    with pytest.raises(UsageError) as refused:
        declare(treated_fleet, **said)
    assert (refused.value.code, bool(refused.value.hint)) == (code, True)
    assert treated_fleet.everything() == before


# Forced generations


def test_a_forced_generation_agrees_from_its_first_engine_on_and_is_not_compared(fleet):
    fleet.create()
    fleet.pair(facts={"isolation": "unknown"})
    fleet.aim(percent=0)
    assert force(fleet).epoch == 1
    fleet.passes(3600)
    told = fleet.pair(generation="g2")
    assert [(one["variant"], one["comparison"], one["reason"]) for one in told] == [("on", "excluded", "forced")] * 2


@pytest.mark.parametrize(
    ("against", "says"),
    [
        (lambda fleet: fleet.change("kill_switch", on=True), "the kill switch is set"),
        (lambda fleet: fleet.change("abort"), "the flag is aborted"),
        (lambda fleet: opt(fleet, "out"), "it is opted out"),
        (lambda fleet: fleet.register("crashing", generation="g2", deaths=3), "it is in safe mode"),
        (
            lambda fleet: [
                fleet.register("s", generation="g2", role="decode"),
                fleet.beat("s", facts={"model_class": "mla_sparse"}),
            ],
            "Sparse MLA accepts the layout and then crashes while binding its cache",
        ),
    ],
)
def test_nothing_is_forced_on_against_what_stops_everybody(treated_fleet, against, says):
    against(treated_fleet)
    with pytest.raises(Conflict, match=says) as refused:
        force(treated_fleet, "g3")
    assert refused.value.code == ErrorCode.NOT_ELIGIBLE
    assert force(treated_fleet, "g3", "off").variant == "off"


def test_a_pin_cannot_be_forced(treated_fleet):
    with pytest.raises(Conflict) as refused:
        force(treated_fleet, "g1")
    assert (refused.value.code, refused.value.message) == (ErrorCode.PINNED, "c/ns/a g1 is pinned off")


# Reopened generations


def test_a_reopened_generation_is_decided_anew_and_its_old_engines_go_on(treated_fleet):
    fleet = treated_fleet
    fleet.change("kill_switch", on=True)
    closed = reopen(fleet)
    assert (closed.epoch, closed.variant) == (1, "on")
    told = fleet.register("new", generation="g2", role="decode")
    assert (told["variant"], told["epoch"], told["reason"]) == ("off", 2, "kill_switch")
    fleet.beat("new")
    [alarm] = fleet.ask(alarms.listing)
    assert (alarm["kind"], alarm["epoch"], alarm["ended_at"]) == ("transition", 2, None)
    assert fleet.ask(signals, KEY, fleet.now) == []
    # What was treated before the epoch closed still is, and an abort waits for it.
    assert {one["epoch"] for one in fleet.ask(treated.living, KEY, fleet.now)} == {1}
    assert fleet.ask(status.status, KEY, fleet.now)["deployments"][0]["treated_engines"] == 2


def test_a_transition_ends_with_the_old_engines(treated_fleet):
    fleet = treated_fleet
    fleet.change("abort")
    reopen(fleet)
    fleet.register("new", generation="g2", role="decode")
    fleet.beat("new")
    fleet.passes(120, beating=("new",))
    assert [alarm["ended_at"] is not None for alarm in fleet.ask(alarms.listing)] == [True]
    assert fleet.ask(treated.living, KEY, fleet.now) == []


def test_engines_of_one_epoch_that_differ_are_mixed_also_after_a_reopening(treated_fleet):
    fleet = treated_fleet
    fleet.change("abort")
    reopen(fleet)
    for name, role in (("p", "prefill"), ("d", "decode")):
        fleet.register(name, generation="g2", role=role)
    fleet.beat("p")
    fleet.beat("d", runs="on")
    assert {(alarm["kind"], alarm["epoch"]) for alarm in fleet.ask(alarms.listing)} >= {("mixed_generation", 2)}


def test_an_engine_that_was_away_stays_in_its_own_epoch(treated_fleet):
    fleet = treated_fleet
    fleet.change("abort")
    reopen(fleet)
    fleet.register("new", generation="g2")
    # Registered again, as it runs: what it is told is the new epoch, what it belongs to is the old one.
    fleet.register("c/ns/a-g2-decode", generation="g2", role="decode", running="on")
    told = dict(fleet.rows("registrations", "id", "told"))["c/ns/a-g2-decode"]
    assert told[KEY] == {"epoch": 1, "variant": "on"}


def test_reopening_ends_no_alarm_while_the_engines_still_differ(treated_fleet):
    fleet = treated_fleet
    fleet.register("odd", generation="g2", role="decode", local={"source": "KVFLAGS_FORCE", "variant": "off"})
    fleet.beat("odd", runs="off")
    [alarm] = fleet.ask(alarms.listing)
    reopen(fleet)
    assert fleet.ask(alarms.listing) == [alarm]
    assert alarm["ended_at"] is None


def test_what_has_no_pin_cannot_be_reopened(treated_fleet):
    before = treated_fleet.everything()
    with pytest.raises(NotFound):
        reopen(treated_fleet, "g9")
    assert treated_fleet.everything() == before


# Identities


def test_two_live_processes_with_one_engine_id_are_refused(treated_fleet):
    fleet = treated_fleet
    fleet.register("twin", "c/ns/b", "g1", "decode")
    fleet.beat("c/ns/a-g2-decode", engine="same")
    fleet.now += 1
    fleet.register("twin", "c/ns/b", "g1", "decode")
    fleet.beat("c/ns/a-g2-decode", engine="same")
    with pytest.raises(Conflict) as refused:
        fleet.beat("twin", engine="same")
    assert refused.value.code == ErrorCode.DUPLICATE_IDENTITY


def test_an_engine_restarted_under_its_id_is_no_duplicate(treated_fleet):
    fleet = treated_fleet
    fleet.now += 1_000_000
    fleet.register("again", generation="g2", role="decode")
    fleet.beat("again", engine="engine-c/ns/a-g2-decode")


# The audit log


def test_the_log_replays_to_what_stands(treated_fleet):
    fleet = treated_fleet
    opt(fleet, "out")
    opt(fleet, "in")
    declare(fleet, isolation="router", labels={"tier": "canary"})
    declare(fleet, isolation="recreate")
    fleet.change("kill_switch", on=True)
    replayed = fleet.ask(audit.replay)
    assert replayed["flags"] == dict(fleet.rows("flags", "key", "document"))
    assert replayed["opts"] == {(KEY, A): "in"}
    assert replayed["declarations"] == dict(fleet.rows("declarations", "deployment", "document"))
