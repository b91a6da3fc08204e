# SPDX-License-Identifier: Apache-2.0
"""The pages: the verdict first, the same content as JSON, and nothing that a fleet sends can become markup."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from html.parser import HTMLParser

import pytest
from sqlalchemy import insert
from starlette.applications import Starlette
from starlette.testclient import TestClient

from kvflags.inert import inert
from kvflags.states import STANDINGS, VERDICTS
from kvflags_collector.access.keyring import Keyring
from kvflags_collector.access.scopes import Scope
from kvflags_collector.access.sessions import Sessions
from kvflags_collector.rollout import flags
from kvflags_collector.store import control_tables as tables
from kvflags_collector.verdict.compare import Standing
from kvflags_collector.verdict.decide import VerdictState
from kvflags_collector.web.kept import Kept
from kvflags_collector.web.pages import routes
from kvflags_collector.web.render import render
from kvflags_collector.web.viewer import Viewer

CSP = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)


@contextmanager
def _client(scene) -> Iterator[TestClient]:
    with closing(Kept(scene.db, lambda: scene.now)) as kept:
        yield TestClient(Starlette(routes=routes(scene.db, kept, _sessions(scene.db), lambda: scene.now)[0]))


def _sessions(db) -> Sessions:
    sessions = Sessions(db, Keyring(db, tokenless=frozenset(Scope), clock=lambda: 0), lambda: 0)
    sessions.start()
    return sessions


class _Text(HTMLParser):
    """The words of a page in order, and every tag, id and link in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.scripts: list[str | None] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.scripts += [dict(attrs).get("src")] if tag == "script" else []
        self.links += [value for name, value in attrs if name in {"href", "src", "action"}]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, data):
        self.words += data.split()

    def says(self, words: str) -> bool:
        return words in " ".join(self.words)


def test_the_page_of_a_rollout_says_the_verdict_first(compared):
    with _client(compared) as client:
        answer = client.get(f"/rollouts/{compared.key}")
    assert (answer.status_code, answer.headers["content-security-policy"]) == (200, CSP)
    page = _Text(answer.text)
    assert " ".join(page.words).startswith(
        "cross-layer-blocks: Waiting · kvflags To the content kvflags / cross-layer-blocks … Waiting cross-layer-blocks"
        " There is not enough evidence to judge this rollout yet."
        " 1 treated deployment in the comparison; 8 are needed."
    )
    for words in (
        "What is next Raise the percentage",
        "Running. Revision 2: set target by ann, 2027-01-02 12:01 UTC . “go”",
        "2 engines run with the feature on.",
        "Target 1 deployment Realised 1 treated, 1 control (50%) To be replaced nothing",
        "Effective among treated ✓ 100%",
        "2 of 2 deployments could be treated (100%).",
        "treatment: 1 control: 1 not compared: 0",
        "No transfer failed in either arm.",
    ):
        assert page.says(words), words
    assert {"style", "img"}.isdisjoint(page.tags)
    assert page.scripts == ["/static/live.js"]
    assert all(link.startswith(("/", "#", "data:")) for link in page.links)


def test_every_part_of_the_page_can_be_pointed_to_once(compared):
    with _client(compared) as client:
        ids = _Text(client.get(f"/rollouts/{compared.key}").text).ids
    parts = [
        *("banner", "actions", "ramp", "health", "outcomes", "forest", "exposure"),
        *("coverage", "errors", "arms", "deployments", "feedback", "timeline"),
    ]
    assert [name for name in ids if name in parts] == parts
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("page", "twin", "template"),
    [
        ("/", "/index.json", "index.html"),
        ("/rollouts/cross-layer-blocks", "/rollouts/cross-layer-blocks.json", "rollout.html"),
        (
            "/rollouts/cross-layer-blocks?q=ns/a&page=9",
            "/rollouts/cross-layer-blocks.json?q=ns/a&page=9",
            "rollout.html",
        ),
    ],
)
def test_the_twin_holds_all_that_the_page_shows(compared, page, twin, template):
    """What a page shows is what its template makes of the twin, after a way through text."""
    with _client(compared) as client:
        document, shown = json.loads(client.get(twin).text), client.get(page).text
    viewer = Viewer(None, may_operate=True, form=_sessions(compared.db).form(None), signed_in=False)
    assert render(template, {"page": document, "viewer": viewer}) == shown


def test_the_documents_name_their_schema(compared):
    with _client(compared) as client:
        schemas = [client.get(path).json()["schema"] for path in ("/index.json", f"/rollouts/{compared.key}.json")]
    assert schemas == ["kvflags.page.index/1", "kvflags.page.rollout/1"]


def test_the_first_page_lists_the_rollouts(compared):
    with _client(compared) as client:
        [found] = client.get("/index.json").json()["rollouts"]
        page = _Text(client.get("/").text)
    assert (found["verdict"]["state"], found["alarms"], found["worst"]) == ("waiting", 0, None)
    assert page.says("cross-layer-blocks cross_layer_blocks … Waiting 1 treated deployment in the comparison")
    assert f"/rollouts/{compared.key}" in page.links


def test_without_any_flag_the_first_page_says_how_to_begin(db):
    with closing(Kept(db, lambda: 0)) as kept:
        page = _Text(TestClient(Starlette(routes=routes(db, kept, _sessions(db), lambda: 0)[0])).get("/").text)
    assert page.says("There is no flag yet. Create one: kvflags flags create cross-layer-blocks")


def test_an_unknown_rollout_is_a_page_and_an_error_body(scene):
    with _client(scene) as client:
        page, twin = client.get("/rollouts/nothing"), client.get("/rollouts/nothing.json")
    assert (page.status_code, _Text(page.text).says("there is no flag 'nothing'")) == (404, True)
    hint = "flags: cross-layer-blocks"
    assert (twin.status_code, twin.json()) == (
        404,
        {"error": {"code": "unknown_flag", "message": "there is no flag 'nothing'", "hint": hint}},
    )


def test_a_rollout_without_anything_says_so_in_every_part(scene):
    with _client(scene) as client:
        page = _Text(client.get(f"/rollouts/{scene.key}").text)
    for words in (
        "No ramp is laid out",
        "Arms as drawn … not known yet",
        "Nothing can be compared yet",
        "No stratum has anything to compare yet.",
        "No generation was pinned under this flag yet",
        "No deployment was seen yet.",
        "No transfer was measured in either arm yet.",
        "No deployment was seen under this flag yet.",
        "Nothing was measured or said yet.",
        " ".join(["treatment 0", *[chr(0x2013)] * 6]),
    ):
        assert page.says(words), words


def test_deployments_are_filtered_and_paged(scene):
    for number in range(53):
        scene.starts(f"c/ns/d{number:02}", "r1")
    with _client(scene) as client:

        def shown(query):
            return client.get(f"/rollouts/{scene.key}.json{query}").json()["deployments"]

        first, last, beyond = shown(""), shown("?page=2"), shown("?page=999")
        assert (first["total"], first["pages"], len(first["items"]), len(last["items"])) == (53, 2, 50, 3)
        assert beyond == last
        assert [one["deployment"] for one in shown("?q=D07")["items"]] == ["c/ns/d07"]
        assert shown("?arm=treatment")["found"] == 0
        assert shown("?arm=none&page=-1")["found"] == 53
        page = _Text(client.get(f"/rollouts/{scene.key}?arm=treatment").text)
    assert page.says("No deployment fits. Show all")


def test_what_was_condemned_is_counted_until_it_is_replaced(compared):
    with compared.db.write() as conn:
        flags.abort(conn, compared.key, author="bob", reason="errors", now=compared.now)
    with _client(compared) as client:
        page = _Text(client.get(f"/rollouts/{compared.key}").text)
        assert page.says("2 treated engines still run: replace their deployments.")
        assert page.says("To be replaced 2 engines in 1 deployments")
    compared.passes(3600)
    with _client(compared) as client:
        assert _Text(client.get(f"/rollouts/{compared.key}").text).says(
            "0 treated engines still run: everything is off."
        )


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "{{ 7*7 }}",
        "\u202eevil\u202c",
        "w" * 10_000,
        "\U0001f600 \U0001f9d1\u200d\U0001f680",
        "' onmouseover='alert(1)",
        "]]></svg><svg onload=alert(1)>",
    ],
)
def test_what_a_fleet_says_is_shown_and_not_run(compared, hostile):
    row = {"flag": compared.key, "sign": "negative", "source": "given", "tag": hostile[:64], "comment": hostile}
    with compared.db.write() as conn:
        conn.execute(
            insert(tables.feedback).values(**row, author=hostile[:200], deployment=hostile[:253], recorded_us=0)
        )
    compared.transfers("c/ns/a", hostile[:253], 1, status=2, error_type=hostile[:64], arm="treatment", epoch=0)
    with _client(compared) as client:
        text = client.get(f"/rollouts/{compared.key}", params={"q": hostile}).text
    page = _Text(text)
    assert "img" not in page.tags
    assert page.scripts == ["/static/live.js"]
    assert " ".join(inert(hostile).split()) in " ".join(page.words)
    assert "\u202e" not in text
    assert "49" not in page.words
    assert " onerror=" not in _attributes(text)
    assert " onmouseover=" not in _attributes(text)


def _attributes(text: str) -> str:
    """All attributes that a browser would see."""
    found: list[str] = []

    class _Seen(HTMLParser):
        def handle_starttag(self, tag, attrs):
            found.extend(f" {name}=" for name, _ in attrs)

    _Seen().feed(text)
    return "".join(found)


def test_every_verdict_and_standing_has_its_words():
    assert set(VERDICTS) == {state.value for state in VerdictState}
    assert {standing.value for standing in Standing} <= set(STANDINGS)


def test_the_stylesheet_is_served(scene):
    with _client(scene) as client:
        answer = client.get("/static/kvflags.css")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert "prefers-color-scheme: dark" in answer.text
