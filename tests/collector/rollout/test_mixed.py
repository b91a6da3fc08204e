# SPDX-License-Identifier: Apache-2.0
"""Mixed generations: recognised within one heartbeat or one failed handshake, counted once, ended with the cause."""

from kvflags_collector.feedback.signals import signals
from kvflags_collector.rollout import alarms
from kvflags_collector.rollout.mixed import on_handshake_failure

KEY = "cross-layer-blocks"
P, D = "c/ns/a-g2-prefill", "c/ns/a-g2-decode"


def treated(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    fleet.pair(generation="g2")


def standing(fleet):
    return [alarm for alarm in fleet.ask(alarms.listing) if alarm["ended_at"] is None]


def failed(fleet, local=f"engine-{D}", remote=f"engine-{P}", deployment="c/ns/a", epoch=1):
    with fleet.db.write() as conn:
        on_handshake_failure(conn, deployment, "g2", epoch, local, remote, fleet.now)


def test_a_cut_off_engine_that_returns_running_off_is_mixed_within_one_heartbeat(fleet):
    treated(fleet)
    told = fleet.register("cut", generation="g2", role="decode", running="off")
    # It is told the pin, verbatim, and cannot follow it any more.
    assert (told["variant"], told["epoch"]) == ("on", 1)
    assert standing(fleet) == []
    fleet.beat("cut", runs="off")
    at = "2027-01-15T08:00:00.000000Z"
    says = "c/ns/a g2: engines that may be paired hold different layouts: 2 with BHLNC, 1 with LBHNC"
    layouts = {"BHLNC": [f"engine-{D}", f"engine-{P}"], "LBHNC": ["engine-cut"]}
    assert standing(fleet) == [
        {"id": 1, "kind": "mixed_generation", "flag": KEY, "deployment": "c/ns/a", "generation": "g2", "epoch": 1}
        | {"detail": {"layouts": layouts}, "says": says, "first_at": at, "last_at": at, "ended_at": None}
    ]
    assert fleet.ask(signals, KEY, fleet.now) == [
        {"id": "m1", "flag": KEY, "deployment": "c/ns/a", "generation": "g2", "sign": "negative", "source": "measured"}
        | {"tags": ["mixed_generation"], "comment": says, "author": "kvflags", "recorded_at": at, "withdrawn": False}
    ]


def test_it_is_counted_once_and_ends_with_its_cause(fleet):
    treated(fleet)
    fleet.register("cut", generation="g2", role="decode", running="off")
    fleet.beat("cut", runs="off")
    fleet.passes(50, beating=(P, D))
    assert len(standing(fleet)) == 1
    fleet.passes(50, beating=(P, D))
    assert standing(fleet) == []
    fleet.register("cut again", generation="g2", role="decode", running="off")
    fleet.beat("cut again", runs="off")
    assert len(standing(fleet)) == 1
    assert len(fleet.rows("alarms")) == len(fleet.rows("feedback")) == 1


def test_a_forced_engine_makes_it_mixed(fleet):
    treated(fleet)
    fleet.register("forced", generation="g2", role="decode", local={"source": "KVFLAGS_FORCE", "variant": "off"})
    fleet.beat("forced")
    assert [alarm["epoch"] for alarm in standing(fleet)] == [1]
    assert fleet.rows("pins", "comparison", "excluded_because")[-1] == ("excluded", "forced")


def test_generations_beside_each_other_are_not_mixed(fleet):
    treated(fleet)
    fleet.tick()
    assert standing(fleet) == []


def test_engines_whose_layout_is_not_known_are_not_mixed(fleet):
    treated(fleet)
    fleet.register("new", generation="g2")
    fleet.beat("new", layout={})
    assert standing(fleet) == []


def test_a_failed_handshake_is_enough(fleet):
    treated(fleet)
    failed(fleet)
    failed(fleet)
    (alarm,) = standing(fleet)
    failure = {"local": f"engine-{D}", "remote": f"engine-{P}", "at_us": fleet.now}
    assert alarm["detail"] == {"handshake": failure}
    assert alarm["says"] == f"c/ns/a g2: engine-{D} cannot pair with engine-{P}, the handshake failed for the layout"
    assert len(fleet.rows("feedback")) == 1


def test_a_failed_handshake_with_an_engine_nobody_hears_lasts_ten_minutes(fleet):
    treated(fleet)
    failed(fleet, remote="cut-off")
    fleet.passes(590, beating=(P, D))
    assert len(standing(fleet)) == 1
    fleet.passes(25, beating=(P, D))
    assert standing(fleet) == []


def test_a_failed_handshake_ends_when_one_of_the_two_is_replaced(fleet):
    treated(fleet)
    failed(fleet, local="gone")
    fleet.tick()
    assert standing(fleet) == []
    failed(fleet, remote="gone")
    assert len(standing(fleet)) == 1
    fleet.passes(100, beating=(P,))
    assert standing(fleet) == []


def test_an_engine_without_an_epoch_belongs_to_the_one_in_force(fleet):
    treated(fleet)
    failed(fleet, epoch=0)
    assert [alarm["epoch"] for alarm in standing(fleet)] == [1]


def test_a_deployment_that_never_registered_raises_nothing(fleet):
    failed(fleet, deployment="made/up")
    assert fleet.rows("alarms") == []


def test_without_a_flag_there_is_an_alarm_and_no_feedback(fleet):
    fleet.register("p")
    fleet.register("d", role="decode")
    fleet.beat("p", runs="off")
    fleet.beat("d", runs="on")
    assert [(alarm["flag"], alarm["epoch"]) for alarm in standing(fleet)] == [(None, 0)]
    assert fleet.rows("feedback") == []


def test_closing_the_epoch_ends_the_alarm(fleet):
    treated(fleet)
    failed(fleet)
    fleet.passes(120)
    assert standing(fleet) == []
    assert fleet.rows("pins", "state")[-1] == ("closed",)
