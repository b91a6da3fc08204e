# SPDX-License-Identifier: Apache-2.0
"""Who counts as alive, when an epoch ends, and that an outage of the collector decides nothing."""

import pytest
from sqlalchemy import event

from kvflags.errors import ErrorCode, NotFound
from kvflags_collector.rollout import leases
from kvflags_collector.store.presence import heard
from kvflags_collector.store.skew import clocks
from kvflags_collector.times import SECOND, rfc3339


def treated(fleet):
    """A treated generation g2, both engines beating, and g1 gone."""
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    fleet.pair(generation="g2")
    fleet.passes(120, beating=TREATED)


TREATED = ("c/ns/a-g2-prefill", "c/ns/a-g2-decode")


def states(fleet):
    return fleet.rows("pins", "generation", "epoch", "variant", "state")


def test_a_starting_lease_lasts_half_an_hour(fleet):
    fleet.create()
    fleet.register("r1")
    fleet.passes(1790)
    assert states(fleet) == [("g1", 1, "off", "pinned")]
    fleet.passes(20)
    assert states(fleet) == [("g1", 1, "off", "closed")]


def test_a_running_lease_is_three_heartbeats(fleet):
    fleet.create()
    fleet.register("r1")
    fleet.beat("r1")
    fleet.passes(80)
    assert states(fleet) == [("g1", 1, "off", "pinned")]
    fleet.passes(10)
    assert states(fleet) == [("g1", 1, "off", "closed")]


def test_with_data_parallelism_the_start_lasts_until_all_were_heard(fleet):
    fleet.create()
    fleet.register("r1", facts={"dp": 2})
    fleet.beat("r1", "rank-0")
    fleet.passes(200)
    assert states(fleet) == [("g1", 1, "off", "pinned")]
    fleet.beat("r1", "rank-1")
    fleet.passes(100)
    assert states(fleet) == [("g1", 1, "off", "closed")]


def test_a_closed_epoch_is_decided_anew(fleet):
    treated(fleet)
    fleet.aim(percent=0)
    fleet.passes(100)
    told = fleet.register("again", generation="g2")
    assert (told["variant"], told["reason"], told["epoch"]) == ("off", "released", 2)


def test_a_condemned_generation_that_is_gone_is_open_again(fleet):
    treated(fleet)
    fleet.change("kill_switch", on=True)
    fleet.passes(100)
    assert fleet.register("again", generation="g2")["reason"] == "kill_switch"


def test_an_unknown_registration_is_told_to_register(fleet):
    with pytest.raises(NotFound) as error:
        fleet.beat("nobody", runs="off")
    assert error.value.code == ErrorCode.UNKNOWN_REGISTRATION


def test_a_late_engine_goes_on_while_its_peers_kept_the_epoch(fleet):
    treated(fleet)
    fleet.passes(300, beating=TREATED[:1])
    assert fleet.beat(TREATED[1])["pending"] == {"replace": 0, "live": 2}


def test_an_engine_that_outlived_its_epoch_registers_again_with_what_runs(fleet):
    treated(fleet)
    fleet.change("kill_switch", on=True)
    fleet.passes(100)
    with pytest.raises(NotFound):
        fleet.beat(TREATED[0])
    told = fleet.register(TREATED[0], generation="g2", running="on")
    # It runs, so it is the pin, condemned by the cause that lasts; a joiner agrees with it.
    assert (told["variant"], told["reason"], told["epoch"], told["state"]) == ("on", "already_running", 2, "condemned")
    assert fleet.register("joiner", generation="g2", role="decode")["variant"] == "on"


def test_an_engine_back_under_another_epoch_registers_again(fleet):
    treated(fleet)
    fleet.change("kill_switch", on=True)
    fleet.passes(100)
    assert fleet.register("new", generation="g2")["variant"] == "off"
    with pytest.raises(NotFound):
        fleet.beat(TREATED[0])


def test_without_a_flag_a_late_engine_simply_goes_on(fleet):
    fleet.register("r1")
    fleet.beat("r1", runs="off")
    fleet.passes(600)
    assert fleet.beat("r1", runs="off")["pending"] == {"replace": 0, "live": 1}


@pytest.mark.parametrize("away", [35, 89, 91, 270, 7 * 86_400])
def test_an_outage_of_the_collector_ends_no_lease(fleet, away):
    """The database away for three leases and one new decode engine at its return: the old variant, no new decision."""
    treated(fleet)
    fleet.change("kill_switch", on=True)
    before = states(fleet)
    fleet.now += away * SECOND
    told = fleet.register("new", generation="g2", role="decode")
    assert (told["variant"], told["epoch"], told["state"]) == ("on", 1, "condemned")
    fleet.passes(80)
    assert states(fleet) == before
    # One lease after its end those that did not come back are gone.
    fleet.beat("new")
    fleet.passes(100)
    assert states(fleet)[-1] == ("g2", 1, "on", "closed")


def test_an_outage_brings_nobody_back_to_life(fleet):
    fleet.create()
    fleet.register("r1")
    fleet.beat("r1")
    fleet.passes(100)
    fleet.now += 3600 * SECOND
    fleet.tick()
    assert fleet.ask(leases.head_count, fleet.now) == {}


def test_a_clock_that_jumps_back_ends_nothing(fleet):
    treated(fleet)
    before = states(fleet)
    fleet.now -= 3600 * SECOND
    fleet.tick()
    assert fleet.register("new", generation="g2")["variant"] == "on"
    assert states(fleet) == before


def test_the_head_count_counts_engines_and_what_still_starts(fleet):
    fleet.register("r1")
    fleet.register("r2", role="decode", facts={"dp": 2})
    fleet.beat("r2", "rank-0", runs="off")
    fleet.beat("r2", "rank-1", runs="off")
    fleet.register("nameless", None)
    assert fleet.ask(leases.head_count, fleet.now) == {("c/ns/a", "g1"): 3, (None, "g1"): 1}
    assert fleet.ask(leases.head_count, fleet.now, "c/ns/a") == {("c/ns/a", "g1"): 3}


def test_a_repeated_or_late_heartbeat_is_harmless(fleet):
    fleet.register("r1")
    first = fleet.beat("r1", runs="off", seq=5)
    assert fleet.beat("r1", runs="off", seq=5) == first
    assert fleet.beat("r1", runs="off", seq=4) == first


def test_a_heartbeat_is_stored_whole(fleet):
    fleet.create()
    fleet.register("r1")
    fleet.beat(
        "r1",
        ranks=2,
        seq=7,
        clock="2027-01-15T08:00:01.500Z",
        exercised={"ok": 5120, "errors": 3},
        dropped={"spans": 4, "events": 1},
        problems=["nixl_telemetry_disabled"],
        layout={"requested": "BHLNC", "resolved": "LBHNC", "regions": 8, "layers": 8, "effective": False},
    )
    names = ("engine_id", "seq", "ranks", "requested", "resolved", "regions", "layers", "effective", "ok", "errors")
    assert fleet.rows("engines", *names, "dropped_spans", "dropped_events", "problems", "skew_ms") == [
        ("engine-r1", 7, 2, "BHLNC", "LBHNC", 8, 8, False, 5120, 3, 4, 1, ["nixl_telemetry_disabled"], 1500.0)
    ]
    facts = fleet.rows("engines", "facts")[0][0]
    assert (facts["vllm"], facts["backend"], facts["kv_heads_per_rank"]) == ("0.32.0", "FLASH_ATTN", 4)


def test_heartbeats_tell_who_was_alive_and_how_wrong_its_clock_is(fleet):
    fleet.create()
    fleet.register("r1")
    for late_s in (3, 0, 2):
        fleet.beat("r1", clock=rfc3339(fleet.now + 3600 * SECOND - late_s * SECOND))
        fleet.now += 60 * SECOND
    # The heartbeat that was the shortest on its way tells it; clocks drift by 3 ms between two.
    assert fleet.rows("engines", "skew_ms") == [(3_600_000.0 - 3.0,)]
    with fleet.db.read() as conn:
        [there] = heard(conn, ["c/ns/a"], 0, fleet.now)
        corrected = clocks(conn, ["c/ns/a"])
    assert (there.engine_id, there.minutes, there.starts) == ("engine-r1", 3, 1)
    assert [(one.engine_id, one.skew_us) for one in corrected] == [
        ("engine-r1", 3597 * SECOND),
        ("engine-r1", 3600 * SECOND),
    ]


def test_no_engine_that_registers_or_heartbeats_costs_a_look_at_the_whole_fleet(fleet):
    if fleet.db.engine.dialect.name != "sqlite":
        pytest.skip("a PostgreSQL this small goes through its tables whatever indexes there are")
    fleet.create()
    fleet.pair()
    asked = []

    def note(_conn, _cursor, statement, parameters, *_):
        asked.append((statement, parameters))

    event.listen(fleet.db.engine, "before_cursor_execute", note)
    fleet.now += 25 * SECOND
    fleet.beat("c/ns/a-g1-decode", exercised={"ok": 2, "errors": 0})
    fleet.register("new", "c/ns/b")
    fleet.beat("new")
    event.remove(fleet.db.engine, "before_cursor_execute", note)
    large = {"engines", "registrations", "pins", "deployments", "assignments", "presence", "clock_skews"}
    with fleet.db.read() as conn:
        for statement, parameters in asked:
            # Once a second a note is made that the collector lives, and an outage would extend every lease there is.
            if statement.startswith("BEGIN") or ("SET lease_until_us=? WHERE" in statement and "< ?" in statement):
                continue
            plan = [row[3] for row in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            assert not [step for step in plan if step.split()[:1] == ["SCAN"] and step.split()[1] in large], statement
    assert len(asked) > 30
