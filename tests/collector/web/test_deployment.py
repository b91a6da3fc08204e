# SPDX-License-Identifier: Apache-2.0
"""The page of one deployment: what it was told, what it did before and after, and an address for every name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from html.parser import HTMLParser

import pytest
import typer
from guarded import Guarded
from starlette.applications import Starlette
from starlette.testclient import TestClient

from kvflags_cli.app import app as command_line
from kvflags_collector.access.keyring import Keyring
from kvflags_collector.access.scopes import Scope
from kvflags_collector.access.sessions import Sessions
from kvflags_collector.rollout import spec, steer
from kvflags_collector.rollout.audit import Actor
from kvflags_collector.store.outcomes import Point, merge
from kvflags_collector.store.rollups import roll
from kvflags_collector.web import places
from kvflags_collector.web.kept import Kept
from kvflags_collector.web.pages import routes
from kvflags_collector.web.render import render
from kvflags_collector.web.viewer import Viewer

NAMES = [
    "c/ns/a",
    "plain",
    "/leading",
    "trailing/",
    "a//b",
    "..",
    ".",
    "a/../b",
    "a.json",
    "a.events",
    "x.json/y",
    "what?is#this",
    "100%/ns/a",
    "%2F",
    "a b",
    "größe/模型/😀",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7*7 }}",
    "w" * 50,
]


@contextmanager
def _client(scene) -> Iterator[TestClient]:
    sessions = Sessions(scene.db, Keyring(scene.db, tokenless=frozenset(Scope), clock=lambda: 0), lambda: 0)
    sessions.start()
    with closing(Kept(scene.db, lambda: scene.now)) as kept:
        shown, _ = routes(scene.db, kept, sessions, lambda: scene.now)
        yield TestClient(Starlette(routes=shown))


class _Text(HTMLParser):
    """What a page says, its tags, and every attribute that a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words, self.tags, self.attributes, self.links = "", [], set(), []
        self.feed(page)
        self.words = " ".join(self.words.split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value for name, value in attrs if name == "href"]

    def handle_data(self, data):
        self.words += f" {data}"


@pytest.fixture
def rolled(compared):
    roll(compared.db, compared.now, seconds=60)
    return compared


def _treated(client, key) -> str:
    rows = client.get(f"/rollouts/{key}.json").json()["deployments"]["items"]
    [name] = [row["deployment"] for row in rows if row["arm"] == "treatment"]
    return name


def test_a_treated_deployment_shows_its_before_and_after(rolled):
    with _client(rolled) as client:
        name = _treated(client, rolled.key)
        page = client.get(places.deployment(name, ".json")).json()
        text = _Text(client.get(places.deployment(name)).text).words
    assert page["schema"] == "kvflags.page.deployment/1"
    before, after = page["generations"]
    assert [(one["generation"], one["variant"], one["transfers"]) for one in (before, after)] == [
        ("r1", "off", 2),
        ("r2", "on", 10),
    ]
    assert (before["descriptors_per_transfer"], after["descriptors_per_transfer"]) == (8, 1)
    assert after["post_ms"]["p50"] == pytest.approx(0.1, rel=0.02)
    assert after["transfer_ms"]["p50"] == pytest.approx(2, rel=0.02)
    under = page["under"]
    assert (under["assigned"], under["eligible"], under["effective"]) == ("treatment", True, True)
    assert under["exercised"] == {"ok": 2, "errors": 0}
    assert [line["line"] for line in under["lines"] if line["won"]] == ["pin"]
    for words in (
        f"{name} Treated under {rolled.key}",
        "Assigned treatment Eligible yes Effective yes Exercised 2 transfers, 0 errors",
        "Nothing keeps it out",
        "✓ whole rows asked BHLNC, got BHLNC, 1 regions for 8 layers",
        "Nothing was measured or said yet.",
    ):
        assert words in text, words


def test_each_engine_has_the_four_facts(rolled):
    with _client(rolled) as client:
        name = _treated(client, rolled.key)
        engines = client.get(places.deployment(name, ".json")).json()["engines"]
    assert engines["total"] == 4
    facts = {
        (one["engine_id"], one["told"], one["refusals"] == [], one["layout"]["effective"], one["exercised"]["ok"])
        for one in engines["items"]
    }
    assert facts == {
        (f"{name}-{generation}-{role}", told, True, told == "on", 1)
        for generation, told in (("r1", "off"), ("r2", "on"))
        for role in ("prefill", "decode")
    }


def test_charts_have_a_line_for_each_variant_and_say_the_same_in_words(rolled):
    with _client(rolled) as client:
        name = _treated(client, rolled.key)
        page = client.get(places.deployment(name, ".json")).json()
        text = client.get(places.deployment(name)).text
    points = page["series"]["points"]
    assert {(one["generation"], one["variant"]) for one in points} == {("r1", "off"), ("r2", "on")}
    assert sum(one["transfers"] for one in points) == 12
    assert [mark["says"] for mark in page["marks"]] == ["r1 pinned off", "r2 pinned on"]
    assert text.count('class="trace on"') == text.count('class="trace off"') >= 4
    assert "Descriptors per transfer over time: at last off 8, on 1; at most 8" in text
    # Nobody's front end sent anything here.
    assert page["series"]["points"][0]["ttft_ms"] is None
    assert "Time to first token, mean Not measured." in _Text(text).words


def test_what_users_felt_is_the_mean_of_all_values_and_not_of_days(rolled):
    hour = 3_600_000_000
    points = [
        Point(("c/ns/a", "r2", 1, "e", "", "kvflags.outcome.time_to_first_token"), at, token, values, micro)
        for token, (at, values, micro) in enumerate(
            [(rolled.now - 30 * hour, 1, 1_000_000), (rolled.now, 3, 600_000)], start=1
        )
    ]
    with rolled.db.append() as conn:
        assert not merge(conn, points, rolled.now)
    # Known for longer than the points are old.
    rolled.passes(1)
    with _client(rolled) as client:
        rows = client.get("/deployments/c/ns/a.json").json()["generations"]
    assert {row["generation"]: row["ttft_ms"] for row in rows} == {"r1": None, "r2": pytest.approx(200.0)}


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_its_page_its_twin_and_a_link_that_leads_there(scene, name):
    # Of these "a" is another deployment, whose twin is where the page of "a.json" might be looked for.
    for one in {name, "a"}:
        scene.starts(one, "r1")
    with _client(scene) as client:
        [link] = {
            one
            for one in _links(client, scene.key)
            if client.get(_twin(one)).json()["deployment"]["deployment"] == name
        }
        assert link == places.deployment(name, flag=scene.key)
        page = _Text(client.get(link).text)
        assert client.get(places.deployment(name, ".json")).json()["deployment"]["deployment"] == name
    assert " ".join(name.split()) in page.words
    assert "img" not in page.tags
    assert page.tags.count("script") == 1
    assert not {"onerror", "onmouseover", "onload"} & page.attributes
    assert " 49 " not in page.words


def _links(client, key) -> set[str]:
    return {one for one in _Text(client.get(f"/rollouts/{key}").text).links if one.startswith("/deployments/")}


def _twin(link: str) -> str:
    path, _, query = link.partition("?")
    return f"{path}.json?{query}"


@pytest.mark.parametrize("name", ["c/ns/a", "a.json"])
def test_the_twin_holds_all_that_the_page_shows(scene, name):
    scene.starts(name, "r1")
    with _client(scene) as client:
        document = json.loads(client.get(places.deployment(name, ".json")).text)
        shown = client.get(places.deployment(name)).text
    form = shown.partition('name="form" value="')[2].partition('"')[0]
    viewer = Viewer(None, may_operate=True, form=form, signed_in=False)
    assert render("deployment.html", {"page": document, "viewer": viewer}) == shown


def test_an_unknown_deployment_and_an_unknown_flag_are_pages_with_a_hint(scene):
    scene.starts("c/ns/a", "r1")
    with _client(scene) as client:
        answers = [client.get(path) for path in ("/deployments/none", "/deployments/", "/deployments/c/ns/a?flag=no")]
    assert [answer.status_code for answer in answers] == [404] * 3
    assert "see `kvflags deployments list`" in answers[0].text
    assert "there is no flag" in answers[2].text


def test_without_a_flag_or_a_measurement_each_part_says_so(db, scene):
    scene.engine("c/ns/a", "r1", "prefill")
    with _client(scene) as client:
        text = _Text(client.get("/deployments/c/ns/a").text).words
        for words in ("Nothing was measured yet: a chart shows here", "Not observed yet: ", "In no arm of"):
            assert words in text, words
        with db.write() as conn:
            spec.archive(conn, scene.key, author="ann", reason="done", now=scene.now)
        text = _Text(client.get("/deployments/c/ns/a").text).words
    assert "There is no flag yet, so it is only observed." in text


def test_the_commands_are_those_that_make_sense_and_each_can_be_run(rolled):
    with _client(rolled) as client:
        name = _treated(client, rolled.key)
        before = client.get(places.deployment(name, ".json")).json()["commands"]
        with rolled.db.write() as conn:
            actor = Actor(author="bob", reason="slower")
            steer.opt(conn, rolled.key, name, "out", actor=actor, now=rolled.now)
        after = client.get(places.deployment(name, ".json")).json()
    assert [one["name"] for one in before] == ["explain", "opt-out", "reopen", "reopen"]
    assert [one["name"] for one in after["commands"]] == ["explain", "opt-out", "reopen", "reopen", "restarts"]
    assert "--clear" in after["commands"][1]["cli"]
    assert after["under"]["to_replace"] == 2
    assert after["timeline"]["items"][0]["why"] == "slower"
    root = typer.main.get_command(command_line)
    for one in [*before, *after["commands"]]:
        words = one["cli"].split()[1:]
        found = root
        while words[0] in getattr(found, "commands", {}):
            found = found.commands[words.pop(0)]
        known = {option for parameter in found.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, one["cli"]


def test_behind_tokens_a_link_leads_back_to_the_page_after_signing_in(db):
    guarded = Guarded(db)
    with guarded.http as http:
        link = places.deployment("what?is/../this", flag="clb")
        assert link == "/deployments/?id=what%3Fis%2F..%2Fthis&flag=clb"
        for address in (link, places.deployment("c/a?b")):
            shown = http.get(address, headers={"Accept": "text/html"})
            assert shown.status_code == 401
            where = shown.text.partition('name="next" value="')[2].partition('"')[0].replace("&amp;", "&")
            sent = {"token": guarded.secrets[Scope.READ], "next": where}
            answer = http.post("/login", data=sent, follow_redirects=False)
            assert answer.headers["location"] == address
            http.post("/logout")
