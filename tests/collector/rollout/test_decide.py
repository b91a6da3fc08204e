# SPDX-License-Identifier: Apache-2.0
"""Decisions handed out: signed, equal to a pin, and honoured by the ledger for as long as engines may follow them."""

import pytest

from kvflags.decision.signed import verify
from kvflags.errors import ErrorCode, NotFound
from kvflags_collector.rollout.decide import decide
from kvflags_collector.times import SECOND

KEY = "cross-layer-blocks"
DAY = 86_400 * SECOND


def hand_out(fleet, generation="g2", deployment="c/ns/a", key=KEY):
    with fleet.db.write() as conn:
        return decide(conn, key, deployment, generation, fleet.now)


def ready(fleet, percent=100):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=percent)


def test_it_pins_and_signs(fleet):
    ready(fleet)
    handed = hand_out(fleet)
    claims = verify(handed["key"], handed["signed"], fleet.now / SECOND, deployment="c/ns/a", generation="g2")
    assert (claims.flag, claims.epoch, claims.variant, claims.arm) == (KEY, 1, "on", "treatment")
    assert claims.expiry == (fleet.now + 90 * DAY) // SECOND
    assert handed["decision"]["signed"] == handed["signed"]
    assert fleet.rows("pins", "generation", "pinned_by")[-1] == ("g2", "decide")
    # Whoever registers is told the same, and whoever is cut off follows the token: they agree.
    assert fleet.register("r", generation="g2") == handed["decision"]


def test_asking_again_gives_the_same_text(fleet):
    ready(fleet)
    handed = hand_out(fleet)
    fleet.now += 30 * DAY
    assert hand_out(fleet) == handed
    fleet.now += 30 * DAY
    later = hand_out(fleet)
    assert later["signed"] != handed["signed"]
    assert later["key"] == handed["key"]


def test_the_epoch_outlives_its_engines_while_a_token_is_out(fleet):
    ready(fleet)
    told = hand_out(fleet)["decision"]
    fleet.pair(generation="g2")
    fleet.change("kill_switch", on=True)
    fleet.passes(200)
    assert fleet.register("again", generation="g2") == told | {"state": "condemned"}
    fleet.passes(2000)
    fleet.now += 91 * DAY
    fleet.tick()
    fleet.passes(2000)
    assert fleet.register("later", generation="g2")["variant"] == "off"


def test_a_registered_generation_is_handed_out_as_it_was_pinned(fleet):
    ready(fleet)
    told = fleet.register("r", generation="g2")
    fleet.change("kill_switch", on=True)
    assert hand_out(fleet)["decision"] == told | {"state": "condemned"}


def test_a_presented_decision_of_a_lost_ledger_equals_a_pin(fleet):
    ready(fleet)
    token = hand_out(fleet)["signed"]
    with fleet.db.write() as conn:
        conn.exec_driver_sql("DELETE FROM pins WHERE generation = 'g2'")
    fleet.change("kill_switch", on=True)
    told = fleet.register("r", generation="g2", presented=token)
    assert (told["variant"], told["arm"], told["reason"], told["state"]) == (
        "on",
        "treatment",
        "handed_out",
        "condemned",
    )
    assert fleet.register("peer", generation="g2", role="decode")["variant"] == "on"


@pytest.mark.parametrize("how", ["closed", "expired", "another", "garbage", "unsigned", "contradicted"])
def test_a_presented_decision_that_is_void_changes_nothing(fleet, how):
    ready(fleet)
    told = fleet.register("first", generation="g2")
    token = told["signed"]
    fleet.change("kill_switch", on=True)
    generation, running = "g2", None
    if how == "closed":
        fleet.passes(1900)
    elif how == "expired":
        fleet.passes(1900)
        fleet.now += 91 * DAY
    elif how == "another":
        generation = "g3"
    elif how == "garbage":
        token, generation = "a.b", "g3"
    elif how == "unsigned":
        token, generation = {**told, "signed": None}, "g3"
    else:
        with fleet.db.write() as conn:
            conn.exec_driver_sql("DELETE FROM pins WHERE generation = 'g2'")
        running = "off"
    said = fleet.register("r", generation=generation, presented=token, running=running)
    assert said["variant"] == "off"
    assert said["reason"] == ("already_running" if running else "kill_switch")


def test_a_decision_last_heard_is_presented_whole(fleet):
    ready(fleet)
    told = fleet.register("first", generation="g2")
    with fleet.db.write() as conn:
        conn.exec_driver_sql("DELETE FROM pins WHERE generation = 'g2'")
    assert fleet.register("r", generation="g2", presented=told)["reason"] == "handed_out"


@pytest.mark.parametrize(
    ("asked", "code"),
    [({"deployment": "c/ns/typo"}, ErrorCode.UNKNOWN_DEPLOYMENT), ({"key": "typo"}, ErrorCode.UNKNOWN_FLAG)],
)
def test_what_is_not_known_is_not_decided(fleet, asked, code):
    ready(fleet)
    before = fleet.everything()
    with pytest.raises(NotFound) as refused:
        hand_out(fleet, **asked)
    assert refused.value.code == code
    assert fleet.everything() == before
