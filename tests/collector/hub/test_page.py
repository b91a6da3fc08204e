# SPDX-License-Identifier: Apache-2.0
"""The hub's page: the verdict over organisations first, and what is missing for one said in numbers."""

from __future__ import annotations

import json
import re

import pytest
from starlette.testclient import TestClient

from kvflags_collector.app import create_app
from kvflags_collector.settings import Settings
from kvflags_collector.web.render import render
from kvflags_collector.web.viewer import Viewer

ORGANISATIONS = ("ash", "birch", "cedar", "elm", "fir")


def _words(hub, path: str = "/hub") -> str:
    answer = hub.http.get(path)
    assert answer.status_code == 200
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text).split())


def _twin(hub, query: str = "") -> dict:
    return json.loads(hub.http.get(f"/hub.json{query}").text)


def test_a_hub_that_nobody_told_anything_says_how_it_begins(hub):
    words = _words(hub)
    for says in (
        "No fleet",
        "Nobody sent anything yet.",
        "figures need 5 organisations",
        "Organisations 0 of 5 needed",
    ):
        assert says in words, says
    assert _twin(hub)["schema"] == "kvflags.page.hub/1"


def test_what_waits_to_be_admitted_is_shown_with_the_command_for_it(hub):
    hub.send("ash")
    [one] = _twin(hub)["organisations"]
    assert one["state"] == "pending"
    assert f"kvflags hub admit {one['organisation']} --name" in _words(hub)
    assert "key" not in one


def test_over_five_organisations_it_has_what_the_report_has(hub):
    for name in ORGANISATIONS:
        hub.send(name)
    hub.admit(*ORGANISATIONS)
    [feature] = _twin(hub)["features"]
    assert feature["report"] == hub.report()
    whole, *strata = feature["forest"]["rows"]
    assert (whole["organisations"], whole["fleets"]) == (5, 5)
    assert whole["change"] == feature["report"]["outcomes"][0]["change"] < 0
    assert [row["name"] for row in strata] == [one["name"] for one in feature["report"]["strata"]]
    words = _words(hub)
    assert "time to first token" in words
    assert "Organisations 5 Fleets 5" in words


def test_another_outcome_is_another_address(hub):
    for name in ORGANISATIONS:
        hub.send(name)
    hub.admit(*ORGANISATIONS)
    for query in ("?outcome=inter_token_latency", "?outcome=nothing"):
        [feature] = _twin(hub, query)["features"]
        wanted = "inter_token_latency" if "inter" in query else "time_to_first_token"
        assert feature["forest"]["outcome"] == wanted
        assert f"By stratum: {wanted.replace('_', ' ')}" in _words(hub, f"/hub{query}")


def test_the_twin_holds_all_that_the_page_shows(hub):
    hub.send("ash")
    document, shown = _twin(hub), hub.http.get("/hub").text
    viewer = Viewer(None, may_operate=True, form="", signed_in=False)
    assert render("hub.html", {"page": document, "viewer": viewer}) == shown


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7*7 }}"])
def test_a_name_is_shown_and_not_run(hub, hostile):
    hub.send("ash")
    [one] = _twin(hub)["organisations"]
    path = f"/hub/organisations/{one['organisation']}/admit"
    assert hub("POST", path, {"author": "ann", "name": hostile})[0] == 200
    text = hub.http.get("/hub").text
    assert text.count("<script") == 1
    assert "<img" not in text
    assert " 49 " not in text


def test_a_collector_that_is_none_says_so(plain):
    words = " ".join(re.sub(r"<[^>]+>", " ", plain.get("/hub").text).split())
    assert "This collector is no hub" in words
    assert plain.get("/hub.json").json()["features"] == []
    assert plain.get("/hub/events").json()["error"]["code"] == "not_a_hub"


@pytest.fixture
def plain(db):
    """A collector that is no hub."""
    with TestClient(create_app(Settings(db=db.url), db, clock=lambda: 0), "http://127.0.0.1") as http:
        yield http
