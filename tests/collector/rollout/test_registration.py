# SPDX-License-Identifier: Apache-2.0
"""What a registering engine is told: verbatim what its generation was pinned, whatever happened since."""

import threading
from dataclasses import replace

import pytest

from kvflags.errors import Conflict
from kvflags_collector.rollout import flags, ledger, tick
from kvflags_collector.rollout.leases import Timing


def test_without_a_flag_an_engine_is_observed_only(fleet):
    with fleet.db.write() as conn:
        body = {"registration_id": "r1", "deployment": "c/ns/a", "features": ["cross_layer_blocks"], "facts": {}}
        answer = ledger.register(conn, body, fleet.now, Timing(heartbeat_s=7))
    assert answer == {"decisions": [], "heartbeat_s": 7, "server_time": "2027-01-15T08:00:00.000000Z"}
    assert fleet.rows("deployments", "id", "observed") == [("c/ns/a", None)]
    assert fleet.rows("pins") == []


def test_a_draft_pins_off(fleet):
    fleet.create()
    told = fleet.register("r1")
    assert told.pop("signed").count(".") == 1
    assert told == {
        "feature": "cross_layer_blocks",
        "flag": "cross-layer-blocks",
        "variant": "off",
        "reason": "phase_draft",
        "arm": None,
        "comparison": "excluded",
        "revision": 1,
        "bucket": None,
        "epoch": 1,
        "state": "pinned",
    }


def test_the_next_generation_carries_out_the_assignment(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(count=1)
    first, second = fleet.pair(generation="g2")
    assert first == second
    assert (first["variant"], first["arm"], first["comparison"]) == ("on", "treatment", "included")
    assert (first["reason"], first["revision"], first["epoch"], first["state"]) == ("assigned", 2, 1, "pinned")
    # The first generation lives on beside it, and whoever joins it still agrees with it.
    assert fleet.register("joiner")["reason"] == "phase_draft"


def test_an_engine_that_does_not_know_the_feature_gets_no_decision(fleet):
    fleet.create()
    assert fleet.register("r1", features=[]) == {}
    assert fleet.rows("pins") == []


def test_a_retry_is_answered_from_the_pin_and_changes_nothing(fleet):
    fleet.create()
    first = fleet.register("r1")
    before = fleet.everything()
    assert fleet.register("r1") == first
    assert fleet.everything() == before


def test_two_engines_registering_at_once_agree(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    barrier, told = threading.Barrier(8), {}

    def start(number: int) -> None:
        barrier.wait()
        told[number] = fleet.register(f"r{number}", generation="g2", role=("prefill", "decode")[number % 2])

    threads = [threading.Thread(target=start, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [told[number] for number in range(8)] == [told[0]] * 8
    assert told[0]["variant"] == "on"
    assert len([row for row in fleet.rows("pins", "generation") if row == ("g2",)]) == 1


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda fleet: fleet.aim(percent=0), "pinned"),
        (lambda fleet: fleet.aim(percent=0, backend="FLASH_ATTN"), "pinned"),
        (lambda fleet: fleet.change("kill_switch", on=True), "condemned"),
        (lambda fleet: fleet.change("abort"), "condemned"),
    ],
)
def test_a_restart_within_a_pinned_generation_is_told_the_same(fleet, change, state):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    told = fleet.pair(generation="g2")[0]
    change(fleet)
    again = fleet.register("restarted", generation="g2", role="decode")
    assert again == told | {"state": state}
    # It takes effect with the next generation.
    assert fleet.register("next", generation="g3")["variant"] == "off"


def test_a_condemnation_is_not_lifted_with_its_cause(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    fleet.pair(generation="g2")
    fleet.change("kill_switch", on=True)
    fleet.change("kill_switch", on=False)
    assert fleet.register("joiner", generation="g2")["state"] == "condemned"
    assert fleet.register("next", generation="g3")["variant"] == "on"


def test_creating_a_flag_pins_every_live_generation_off(fleet):
    fleet.pair()
    fleet.pair("c/ns/b", "g7")
    fleet.register("nameless", None)
    fleet.create()
    pinned = fleet.rows("pins", "deployment", "generation", "variant", "reason")
    assert pinned == [("c/ns/a", "g1", "off", "flag_created"), ("c/ns/b", "g7", "off", "flag_created")]
    assert fleet.register("joiner")["reason"] == "flag_created"


def test_an_unidentified_engine_is_observed_and_never_bucketed(fleet):
    fleet.create()
    fleet.aim(percent=100)
    assert fleet.register("r1", None) == {}
    assert fleet.beat("r1")["pending"] == {"replace": 0, "live": 0}
    assert (fleet.rows("pins"), fleet.rows("assignments")) == ([], [])


def test_a_registration_id_belongs_to_one_generation(fleet):
    fleet.register("r1")
    before = fleet.everything()
    with pytest.raises(Conflict, match="another deployment or generation"):
        fleet.register("r1", generation="g2")
    assert fleet.everything() == before


def test_what_runs_already_makes_the_pin(fleet):
    fleet.create()
    fleet.aim(percent=100)
    told = fleet.register("r1", running="on")
    assert (told["variant"], told["reason"], told["comparison"]) == ("on", "already_running", "excluded")
    assert fleet.register("r2", role="decode")["variant"] == "on"


def test_what_runs_already_against_the_kill_switch_is_condemned_at_once(fleet):
    fleet.create()
    fleet.change("kill_switch", on=True)
    assert fleet.register("r1", running="on")["state"] == "condemned"
    assert fleet.register("r2", running="off", generation="g2")["state"] == "pinned"


def test_an_engine_that_gave_up_waiting_does_not_leave_a_pin_nobody_follows(fleet):
    """Its first registration was answered too late: it runs off, and says so under the same id."""
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    assert fleet.register("late", generation="g2")["variant"] == "on"
    told = fleet.register("late", generation="g2", running="off")
    assert (told["variant"], told["reason"], told["epoch"]) == ("off", "already_running", 2)
    assert fleet.register("peer", generation="g2", role="decode")["variant"] == "off"


def test_once_a_peer_was_told_the_pin_stands(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    fleet.register("late", generation="g2")
    fleet.register("peer", generation="g2", role="decode")
    assert fleet.register("late", generation="g2", running="off")["variant"] == "on"


def test_a_forced_engine_neither_makes_nor_changes_a_pin(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    forced = {"source": "KVFLAGS_FORCE", "variant": "off"}
    told = fleet.register("forced", generation="g2", role="decode", local=forced)
    assert (told["variant"], told["reason"], told["epoch"], told["signed"]) == ("off", "local:KVFLAGS_FORCE", 0, None)
    assert [row for row in fleet.rows("pins", "generation") if row == ("g2",)] == []
    told = fleet.register("free", generation="g2")
    assert (told["variant"], told["arm"], told["comparison"]) == ("on", "treatment", "excluded")
    assert fleet.rows("pins", "generation", "excluded_because")[-1] == ("g2", "forced")
    # The next generation, without it, is compared again.
    assert fleet.register("next", generation="g3")["comparison"] == "included"


def test_a_forced_engine_that_comes_later_takes_the_generation_out(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    fleet.register("free", generation="g2")
    fleet.register("forced", generation="g2", local={"source": "KVFLAGS_FORCE", "variant": "off"})
    assert fleet.rows("pins", "generation", "comparison", "arm")[-1] == ("g2", "excluded", "treatment")


def test_unsafe_facts_overrule_a_pin_and_condemn_it(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    fleet.register("good", generation="g2")
    told = fleet.register("bad", generation="g2", role="decode", facts={"model_class": "mla_sparse"})
    assert (told["variant"], told["reason"], told["arm"], told["comparison"]) == (
        "off",
        "unsafe_under_pin",
        None,
        "excluded",
    )
    assert fleet.rows("pins", "variant", "state", "condemned_reason")[-1] == ("on", "condemned", "unsafe_under_pin")
    # A rule of class `ineffective` keeps the pinned `on`.
    assert fleet.register("slow", generation="g2", facts={"kv_heads_per_rank": 1})["variant"] == "on"


def test_an_engine_that_refused_by_itself_condemns_too(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    fleet.register("good", generation="g2")
    told = fleet.register("bad", generation="g2", refused="unsafe_under_pin")
    assert (told["variant"], told["state"]) == ("off", "condemned")


def test_unsafe_facts_of_the_first_engine_are_a_gate(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    told = fleet.register("bad", generation="g2", facts={"model_class": "mla_sparse"})
    assert (told["variant"], told["reason"], told["state"]) == ("off", "gate:sparse_mla", "pinned")


def test_unsafe_facts_known_only_to_the_worker_condemn_what_runs(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    fleet.register("r", generation="g2")
    answer = fleet.beat("r", facts={"model_class": "mla_sparse"})
    assert (answer["condemned"], answer["pending"]) == (["cross-layer-blocks"], {"replace": 1, "live": 1})


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"vllm": "0.32.1"}, "facts_changed"),
        ({"nixl": "1.6.0"}, "facts_changed"),
        ({"backend": "TRITON_ATTN"}, "facts_changed"),
        ({"block_size": 32}, "facts_changed"),
        ({"tp": 2}, "facts_changed"),
        ({"isolation": "unknown"}, "facts_changed"),
        ({"backend": None, "block_size": None, "lab": True}, "assigned"),
    ],
)
def test_a_changed_static_fact_is_off_and_null_is_as_observed(fleet, facts, reason):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    assert fleet.register("r", generation="g2", facts=facts)["reason"] == reason


def test_a_role_that_was_never_observed_is_a_change(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    assert fleet.register("r", generation="g2", role="both")["reason"] == "facts_changed"


def test_without_telemetry_nothing_is_newly_switched_on_and_a_pin_is_carried_out(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    blind = {"problems": ["nixl_telemetry_disabled"]}
    assert fleet.register("r", generation="g2", **blind)["reason"] == "nixl_telemetry_disabled"
    fleet.register("s", generation="g3")
    assert fleet.register("t", generation="g3", **blind)["variant"] == "on"


def test_engines_that_keep_dying_under_on_condemn_their_generation(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    fleet.register("p", generation="g2")
    assert fleet.register("d", generation="g2", role="decode", deaths=2)["state"] == "pinned"
    told = fleet.register("e", generation="g2", role="decode", deaths=3)
    assert (told["variant"], told["state"]) == ("on", "condemned")
    assert fleet.register("next", generation="g3")["reason"] == "safe_mode"


def test_a_flag_under_another_feature_list_is_not_asked(fleet):
    flag = fleet.create()
    with fleet.db.read() as conn:
        assert flags.by_feature(conn) == {"cross_layer_blocks": flag}
        assert flags.by_feature(conn, []) == {}


def test_a_tick_is_idempotent(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    fleet.tick()
    before = fleet.everything()
    for _ in range(3):
        with fleet.db.write() as conn:
            tick.tick(conn, fleet.now, replace(fleet.timing))
    assert fleet.everything() == before
