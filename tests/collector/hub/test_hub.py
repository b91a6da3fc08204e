# SPDX-License-Identifier: Apache-2.0
"""What a hub takes, what it refuses, and what it says."""

from __future__ import annotations

from math import log

import pytest
from bundles import bundle, key_of, revocation, signed
from starlette.testclient import TestClient

from kvflags_collector.app import create_app
from kvflags_collector.hub.plausible import RULES
from kvflags_collector.settings import Settings

SIX = [f"org-{number}" for number in range(6)]


def code(answer):
    status, body = answer
    return status, body["error"]["code"]


@pytest.fixture
def reporting(hub):
    """Six organisations that gain, admitted."""
    hub.receipts = {name: hub.send(name)[1]["receipt"] for name in SIX}
    hub.admit(*SIX)
    return hub


def test_six_organisations_that_gain_are_ready_for_their_stratum(reporting):
    found = reporting.report()
    assert (found["verdict"]["state"], found["verdict"]["scope"]) == (
        "ready",
        ["FLASH_ATTN, H100, vLLM 0.32, block 16"],
    )
    assert (found["organisations"], found["fleets"], found["treated"]) == (6, 6, 72)
    [ttft] = [one for one in found["outcomes"] if one["outcome"] == "time_to_first_token"]
    assert ttft["change"] == pytest.approx(-0.2212, abs=0.001)
    assert ttft["low"] < ttft["change"] < ttft["high"] < 0
    assert ttft["largest_share"] == pytest.approx(1 / 6, abs=1e-6)
    assert ttft["without_largest"]["change"] == pytest.approx(-0.2212, abs=0.001)


def test_one_organisation_with_six_fleets_and_four_without_an_effect_are_not_ready(hub):
    for number in range(6):
        hub.send("big", f"fleet-{number}", log(0.4))
    for name in SIX[:4]:
        hub.send(name, effect=0.0)
    hub.admit("big", *SIX)
    found = hub.report()
    assert (found["organisations"], found["fleets"]) == (5, 10)
    assert (found["verdict"]["state"], found["verdict"]["reason"]) == ("on_track", "not_yet_better")
    [ttft] = [one for one in found["outcomes"] if one["outcome"] == "time_to_first_token"]
    assert ttft["largest_share"] < 0.25
    assert ttft["without_largest"]["change"] == pytest.approx(0, abs=0.001)


def test_nobody_counts_before_an_admin_says_so(hub):
    receipt = hub.send("org-0")[1]
    assert (receipt["state"], receipt["counted"]) == ("pending", False)
    assert hub.report()["organisations"] == 0
    hub.admit("org-0")
    assert hub.report()["organisations"] == 1
    [listed] = hub("GET", "/hub/organisations")[1]["items"]
    assert (listed["state"], listed["name"], listed["bundles"], listed["revoked"]) == ("admitted", "org-0", 1, 0)
    assert hub("POST", f"/hub/organisations/{listed['organisation']}/dismiss", {"author": "ann"})[0] == 200
    assert hub.report()["organisations"] == 0


def test_a_fleet_counts_with_its_last_bundle(reporting):
    assert reporting.send(SIX[0], effect=-0.1)[0] == 201
    found = reporting.report()
    assert (found["organisations"], found["fleets"]) == (6, 6)
    assert found["outcomes"][0]["change"] > -0.215


def test_taking_a_bundle_back_restores_the_report_byte_for_byte(reporting):
    before = reporting.bytes()
    receipt = reporting.send(SIX[0], effect=-0.1)[1]["receipt"]
    assert reporting.bytes() != before
    assert reporting.revoke(SIX[0], receipt) == (
        200,
        {"organisation": _listed(reporting, SIX[0])["organisation"], "revoked": 1, "left": False},
    )
    assert reporting.bytes() == before
    assert reporting.revoke(SIX[0], receipt)[0] == 200
    assert reporting.bytes() == before


def test_any_past_report_can_be_asked_for(reporting):
    before, day = reporting.report(), "2027-01-15T08:00:30Z"
    reporting.now += 60_000_000
    reporting.send(SIX[0], effect=-0.1)
    reporting.revoke(SIX[1], reporting.receipts[SIX[1]])
    assert reporting.report() != before
    assert reporting.report(day) == before


def test_a_report_depends_on_no_order(reporting, db, databases):
    found = reporting.report()
    for name in SIX:
        reporting.revoke(name, reporting.receipts[name])
    for name in reversed(SIX):
        assert reporting.send(name, kvflags="0.1.1")[0] == 201
    again = reporting.report()
    assert again | {"evidence_until": None} == found | {"evidence_until": None}


def test_a_bundle_counts_once_and_does_not_come_again_when_taken_back(hub):
    sent = signed(key_of("org-0"), bundle("org-0"))
    receipt = hub("POST", "/hub/bundles", sent)[1]["receipt"]
    again = hub("POST", "/hub/bundles", sent)
    assert code(again) == (409, "duplicate_bundle")
    assert again[1]["error"]["detail"]["receipt"] == receipt
    hub.revoke("org-0", receipt)
    assert code(hub("POST", "/hub/bundles", sent)) == (409, "revoked_bundle")


def test_who_left_is_refused_for_good(reporting):
    assert reporting.revoke(SIX[0], None)[1]["left"] is True
    assert reporting.report()["organisations"] == 5
    assert code(reporting.send(SIX[0], effect=-0.2)) == (409, "organisation_left")
    which = _listed(reporting, SIX[0])
    assert which["state"] == "left"
    path = f"/hub/organisations/{which['organisation']}/admit"
    assert code(reporting("POST", path, {"author": "ann"})) == (409, "organisation_left")


@pytest.mark.parametrize(
    "tamper",
    [
        lambda sent: sent["bundle"]["effects"][4].update(log_ratio=-0.5),
        lambda sent: sent["bundle"].update(fleet="f" * 16),
        lambda sent: sent.update(key=signed(key_of("another"), {})["key"]),
        lambda sent: sent.update(signature="A" * 86),
    ],
)
def test_what_was_changed_on_the_way_is_refused(hub, tamper):
    sent = signed(key_of("org-0"), bundle("org-0"))
    tamper(sent)
    assert code(hub("POST", "/hub/bundles", sent)) == (400, "bad_signature")


def test_nobody_takes_back_what_another_sent(hub):
    receipt = hub.send("org-0")[1]["receipt"]
    assert code(hub.revoke("org-1", receipt)) == (404, "unknown_bundle")
    forged = revocation(key_of("org-1"), receipt) | {"key": signed(key_of("org-0"), {})["key"]}
    assert code(hub("POST", "/hub/revocations", forged)) == (400, "bad_signature")


_WRONG = {
    "no_date": {"made_on": "2027-02-31"},
    "from_the_future": {"made_on": "2027-01-17"},
    "too_old": {"made_on": "2026-01-13"},
    "beyond_reason": {"effect": 3.1},
    "said_twice": {"architectures": [{"architecture": "other", "deployments": 9}] * 2},
    "more_than_all": {"treated": 11},
    "better_and_slower": {"verdict": "ready", "effect": 0.1},
}


@pytest.mark.parametrize("rule", sorted(rule.name for rule in RULES))
def test_what_cannot_be_is_refused_by_name(hub, rule):
    status, body = hub.send("org-0", **_WRONG[rule])
    assert (status, body["error"]["code"], body["error"]["detail"]) == (400, "implausible_bundle", {"rule": rule})


def test_the_same_figures_do_not_count_as_two_fleets(hub):
    document = bundle("org-0")
    assert hub("POST", "/hub/bundles", signed(key_of("org-0"), document))[0] == 201
    copied = hub("POST", "/hub/bundles", signed(key_of("org-1"), document | {"fleet": "0" * 16}))
    assert (copied[0], copied[1]["error"]["detail"]) == (400, {"rule": "copied"})


@pytest.mark.parametrize(
    "change",
    [
        {"host": "gpu-7.acme.example"},
        {"feature": "another"},
        {"strata": [{"gpu": "acme-gpu", "treated": 9, "control": 9, "effects": []}]},
        {"strata": [{"gpu": "H100", "treated": 4, "control": 9, "effects": []}]},
        {"made_on": "\uff12\uff10\uff12\uff17-01-15"},
        {"deployments": 3.5},
        {"architectures": [{"architecture": "AcmeForCausalLM", "deployments": 9}]},
        {"strata_left_out": 10**9},
        {"effects": [{"outcome": "time_to_first_token"}] * 9},
    ],
)
def test_what_is_not_of_the_shape_is_refused(hub, change):
    assert code(hub("POST", "/hub/bundles", signed(key_of("org-0"), bundle("org-0") | change))) == (400, "invalid")


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b'{"key": 1}', b"[" * 60_000, b'{"bundle": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", b"\xff"],
)
def test_what_is_no_envelope_is_refused(hub, body):
    response = hub.http.post("/api/v1/hub/bundles", content=body, headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid")


def test_a_large_body_is_not_read(hub):
    sent = signed(key_of("org-0"), bundle("org-0")) | {"padding": "x" * 100_000}
    assert hub("POST", "/hub/bundles", sent)[0] == 413


def test_a_fleet_whose_comparison_is_invalid_adds_no_figure(hub):
    hub.send("org-0", verdict="invalid")
    hub.admit("org-0")
    found = hub.report()
    assert (found["organisations"], found["outcomes"], found["fleet_verdicts"]) == (1, [], {"invalid": 1})


@pytest.mark.parametrize("se", [1e-9, 0.0])
def test_what_is_known_all_too_well_weighs_as_what_is_known_well(reporting, se):
    for number in range(4):
        reporting.send(f"more-{number}", se=0.001)
        reporting.admit(f"more-{number}")
    before = reporting.bytes()
    receipt = reporting.send(SIX[0], se=0.001)[1]["receipt"]
    as_well = reporting.report()
    reporting.revoke(SIX[0], receipt)
    assert reporting.bytes() == before
    reporting.send(SIX[0], se=se)
    assert reporting.report()["outcomes"] == as_well["outcomes"]


def test_a_stratum_of_few_organisations_shows_no_figure(reporting):
    reporting.send("org-9", gpu="B200")
    reporting.admit("org-9")
    strata = {one["name"]: one for one in reporting.report()["strata"]}
    assert strata["FLASH_ATTN, B200, vLLM 0.32, block 16"]["outcomes"] == []
    assert len(strata["FLASH_ATTN, H100, vLLM 0.32, block 16"]["outcomes"]) == 2


def test_a_collector_that_is_no_hub_says_so(db):
    with TestClient(create_app(Settings(db=db.url), db), "http://127.0.0.1") as http:
        for answer in (
            http.post("/api/v1/hub/bundles", json=signed(key_of("org-0"), bundle("org-0"))),
            http.get("/api/v1/hub/reports/cross_layer_blocks"),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_a_hub")


def test_an_unknown_feature_is_named(hub):
    assert code(hub("GET", "/hub/reports/another")) == (400, "invalid")


def _listed(hub, name):
    key = signed(key_of(name), {})["key"]
    return next(one for one in hub("GET", "/hub/organisations")[1]["items"] if one["key"] == key)
