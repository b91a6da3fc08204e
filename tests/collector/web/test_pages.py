# SPDX-License-Identifier: Apache-2.0
"""The pages: the verdict first, the same content as JSON, and nothing that a fleet sends can become markup."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from sqlalchemy import insert
from starlette.applications import Starlette
from starlette.testclient import TestClient

from kvflags_collector.feedback import report
from kvflags_collector.store import control_tables as tables
from kvflags_collector.verdict.decide import VerdictState
from kvflags_collector.web.pages import routes
from kvflags_collector.web.render import VERDICTS

CSP = "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def _client(scene) -> TestClient:
    return TestClient(Starlette(routes=list(routes(scene.db, lambda: scene.now))))


class _Text(HTMLParser):
    """The words of a page in order, and every tag and link in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in {"href", "src"}]

    def handle_data(self, data):
        self.words += data.split()

    def says(self, words: str) -> bool:
        return words in " ".join(self.words)


def test_the_page_of_a_rollout_says_the_verdict_first(compared):
    answer = _client(compared).get(f"/rollouts/{compared.key}")
    assert (answer.status_code, answer.headers["content-security-policy"]) == (200, CSP)
    page = _Text(answer.text)
    assert " ".join(page.words).startswith(
        "cross-layer-blocks: Waiting · kvflags kvflags / cross-layer-blocks … Waiting "
        "There is not enough evidence to judge this rollout yet. "
        "1 treated deployment in the comparison; 8 are needed."
    )
    for words in (
        "Next: Raise the percentage",
        "Target 1 deployment",
        "Effective among treated 100%",
        "BHLNC regions 1, layers 8",
    ):
        assert page.says(words), words
    assert {"script", "style", "img", "form"}.isdisjoint(page.tags)
    assert page.links == ["data:,", "/static/kvflags.css", "/", f"/rollouts/{compared.key}.json"]


def test_the_json_twin_is_the_report(compared):
    answer = _client(compared).get(f"/rollouts/{compared.key}.json")
    assert answer.json() == report.build(compared.db, compared.key, compared.now)


def test_the_first_page_lists_the_rollouts(compared):
    client = _client(compared)
    found = client.get("/index.json").json()
    whole = report.build(compared.db, compared.key, compared.now)
    assert found == {
        "schema": "kvflags.index/1",
        "generated_at": "2027-01-02T12:01:01.000000Z",
        "rollouts": [{name: whole[name] for name in ("flag", "verdict", "data_health")} | {"standing": 0}],
    }
    page = _Text(client.get("/").text)
    assert page.says("cross-layer-blocks … Waiting 1 treated deployment in the comparison; 8 are needed. running")
    assert f"/rollouts/{compared.key}" in page.links


def test_an_unknown_rollout_is_a_page_and_an_error_body(scene):
    client = _client(scene)
    page, twin = client.get("/rollouts/nothing"), client.get("/rollouts/nothing.json")
    assert (page.status_code, _Text(page.text).says("there is no flag 'nothing'")) == (404, True)
    hint = "flags: cross-layer-blocks"
    assert (twin.status_code, twin.json()) == (
        404,
        {"error": {"code": "unknown_flag", "message": "there is no flag 'nothing'", "hint": hint}},
    )


def test_a_rollout_without_anything_has_dashes(scene):
    page = _Text(_client(scene).get(f"/rollouts/{scene.key}").text)
    dash = chr(0x2013)
    assert page.says(" ".join(["treatment 0", *[dash] * 6, dash, "·", dash, dash, dash, "·", dash]))
    assert page.says("No deployment was seen under this flag yet.")


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7*7 }}"])
def test_what_a_fleet_says_is_shown_and_not_run(compared, hostile):
    row = {"flag": compared.key, "sign": "negative", "source": "given", "tag": hostile, "comment": hostile}
    with compared.db.write() as conn:
        conn.execute(insert(tables.feedback).values(**row, author=hostile, deployment=hostile, recorded_us=0))
    compared.transfers("c/ns/a", hostile, 1, status=2, error_type=hostile)
    text = _client(compared).get(f"/rollouts/{compared.key}").text
    page = _Text(text)
    assert {"script", "img"}.isdisjoint(page.tags)
    assert page.says(hostile)
    assert "49" not in page.words


def test_every_verdict_has_its_words():
    assert set(VERDICTS) == {state.value for state in VerdictState}


def test_the_stylesheet_is_served(scene):
    answer = _client(scene).get("/static/kvflags.css")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert "prefers-color-scheme: dark" in answer.text
