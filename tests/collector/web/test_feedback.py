# SPDX-License-Identifier: Apache-2.0
"""Feedback from a page: given, changed and taken back by whoever may, as often as somebody else did not come first."""

from __future__ import annotations

import json
import shlex

import pytest
import typer
from browsing import Browser, Forms
from sqlalchemy import insert

from kvflags_cli.app import app as command_line
from kvflags_collector.access.scopes import Scope
from kvflags_collector.feedback import given
from kvflags_collector.rollout.audit import Actor
from kvflags_collector.store.control_tables import deployments
from kvflags_collector.web.render import render
from kvflags_collector.web.viewer import Viewer

WHERE = "/rollouts/clb/feedback/g1"
SAID = {"sign": "negative", "tags": ["latency"], "comment": "p99 <b>doubled</b>"}


@pytest.fixture
def said(browser, db) -> Browser:
    """One that bob gave, g1, in front of an operator."""
    _seen(db, "c/ns/a", browser.guarded.now)
    with db.write() as conn:
        given.give(conn, "clb", "c/ns/a", SAID, author="bob", now=browser.guarded.now)
    browser.sign_in(Scope.OPERATE)
    return browser


def _twin(browser: Browser) -> dict:
    return json.loads(browser.http.get(f"{WHERE}.json").text)


def _counts(browser: Browser) -> tuple[int, int]:
    page = browser.http.get(f"{browser.page}.json").json()["feedback"]
    return page["positive"], page["negative"]


def _fields(browser: Browser, what: str) -> dict[str, str]:
    return Forms(browser.get(WHERE).text).found[f"{WHERE}/{what}"]


def test_feedback_is_given_from_the_page_and_shown_on_it(browser, db):
    _seen(db, "c/ns/a", browser.guarded.now)
    browser.sign_in(Scope.OPERATE)
    fields = browser.forms()[f"{browser.page}/feedback"]
    said = {
        "deployment": "c/ns/a",
        "sign": "negative",
        "tag-crash": "1",
        "tag-latency": "1",
        "comment": "a\r\n<b>p99</b>",
    }
    answer = browser.send("feedback", fields | said)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{browser.page}#feedback")
    page = browser.http.get(f"{browser.page}.json").json()["feedback"]
    [one] = page["items"]
    assert (page["negative"], one["author"], one["tags"]) == (1, "the-operate", ["crash", "latency"])
    assert one["comment"] == "a\n<b>p99</b>"
    assert "negative crash, latency given, c/ns/a a <b>p99</b> the-operate," in Forms(browser.get().text).text


@pytest.mark.parametrize(
    ("wrong", "status", "says"),
    [
        ({"deployment": "c/ns/none"}, 404, "there is no deployment &#39;c/ns/none&#39;"),
        ({"sign": "maybe"}, 400, "sign: "),
        ({"comment": " "}, 400, "comment: "),
        ({"comment": "x" * 10_001}, 400, "comment: "),
        ({"form": "0" * 64}, 400, "not made for you"),
    ],
)
def test_feedback_that_is_wrong_is_told_so_and_not_kept(browser, db, wrong, status, says):
    _seen(db, "c/ns/a", browser.guarded.now)
    browser.sign_in(Scope.OPERATE)
    fields = browser.forms()[f"{browser.page}/feedback"] | {"deployment": "c/ns/a", "sign": "positive", "comment": "ok"}
    answer = browser.send("feedback", fields | wrong)
    assert (answer.status_code, says in answer.text) == (status, True)
    assert browser.http.get(f"{browser.page}.json").json()["feedback"]["items"] == []


def test_who_only_reads_gives_no_feedback(browser, db):
    _seen(db, "c/ns/a", browser.guarded.now)
    browser.sign_in(Scope.READ)
    assert set(browser.forms()) == {"/logout", f"{browser.page}#deployments"}
    assert browser.send("feedback", {}).status_code == 403


def _seen(db, deployment: str, now: int) -> None:
    with db.write() as conn:
        conn.execute(insert(deployments).values(id=deployment, first_seen_us=now, last_seen_us=now))


def test_a_rollout_and_a_deployment_lead_to_the_page_of_what_was_said(said):
    for path in (said.page, "/deployments/c/ns/a"):
        assert f'href="{WHERE}"' in said.get(path).text
    page = _twin(said)
    assert page["schema"] == "kvflags.page.feedback/1"
    assert (page["said"]["comment"], page["said"]["revision"]) == ("p99 <b>doubled</b>", 1)
    shown = said.get(WHERE).text
    assert "negative feedback g1, revision 1 p99 <b>doubled</b>" in Forms(shown).text
    viewer = Viewer("the-operate", may_operate=True, form=_fields(said, "edit")["form"], signed_in=True)
    assert render("said.html", {"page": page, "viewer": viewer}) == shown


def test_it_is_changed_and_what_stood_there_stays(said):
    new = {"sign": "positive", "tag-memory": "1", "comment": "it was\r\nthe network", "reason": "looked again"}
    answer = said.send("feedback/g1/edit", _fields(said, "edit") | new)
    assert (answer.status_code, answer.headers["location"]) == (303, WHERE)
    found = _twin(said)["said"]
    assert (found["sign"], found["tags"], found["comment"]) == ("positive", ["memory"], "it was\nthe network")
    assert (found["author"], found["changed_by"], found["revision"]) == ("bob", "the-operate", 2)
    assert [(one["comment"], one["reason"]) for one in found["revisions"]] == [
        ("p99 <b>doubled</b>", None),
        ("it was\nthe network", "looked again"),
    ]
    assert _counts(said) == (1, 0)


def test_it_is_taken_back_counts_no_more_and_stays_readable(said):
    answer = said.send("feedback/g1/withdraw", _fields(said, "withdraw") | {"reason": "wrong deployment"})
    assert (answer.status_code, answer.headers["location"]) == (303, WHERE)
    page = said.get(WHERE).text
    assert "Withdrawn by the-operate" in Forms(page).text
    assert "p99 <b>doubled</b>" in Forms(page).text
    assert set(Forms(page).found) == {"/logout"}
    assert _counts(said) == (0, 0)
    # Who has the old page open is told that it is over.
    again = said.send("feedback/g1/edit", {"form": _form(said), "revision": "2", "reason": "no", **_SENT})
    assert (again.status_code, "feedback g1 was withdrawn by the-operate" in again.text) == (409, True)


@pytest.mark.parametrize("what", ["edit", "withdraw"])
def test_who_comes_too_late_is_told_keeps_what_they_wrote_and_may_send_it_again(said, db, what):
    fields = _fields(said, what) | {"reason": "mine <i>"} | (_SENT if what == "edit" else {})
    with db.write() as conn:
        actor = Actor(author="bob", reason="found it")
        given.edit(conn, "clb", "g1", {"comment": "a switch"}, actor=actor, revision=1, now=said.guarded.now)
    answer = said.send(f"feedback/g1/{what}", fields)
    page = Forms(answer.text)
    assert answer.status_code == 409
    assert "nothing was done" in page.text
    assert "feedback g1 is at revision 2 by bob, not 1" in page.text
    assert _twin(said)["said"]["revision"] == 2
    again = page.found[f"{WHERE}/{what}"]
    assert (again["revision"], again["reason"]) == ("2", "mine <i>")
    if what == "edit":
        assert answer.text.count("ours") == 1
    assert said.send(f"feedback/g1/{what}", fields | again).status_code == 303
    assert _twin(said)["said"]["revision"] == 3


_SENT = {"sign": "negative", "comment": "ours"}


@pytest.mark.parametrize(
    ("what", "wrong", "status", "says"),
    [
        ("edit", {"reason": " "}, 400, "reason: "),
        ("edit", {"comment": " "}, 400, "comment: "),
        ("edit", {"sign": "maybe"}, 400, "sign: "),
        ("edit", {"revision": "x"}, 400, "which revision"),
        ("withdraw", {"reason": ""}, 400, "reason: "),
        ("withdraw", {"form": "0" * 64}, 400, "not made for you"),
    ],
)
def test_what_is_wrong_is_told_and_changes_nothing(said, what, wrong, status, says):
    fields = _fields(said, what) | {"reason": "because"} | (_SENT if what == "edit" else {})
    answer = said.send(f"feedback/g1/{what}", fields | wrong)
    assert (answer.status_code, says in answer.text) == (status, True)
    assert _twin(said)["said"]["revision"] == 1


def test_what_nobody_gave_has_no_page(said):
    for name in ("g2", "m1", "g", "x"):
        answer = said.get(f"/rollouts/clb/feedback/{name}")
        assert (answer.status_code, "what was measured cannot be changed" in answer.text) == (404, True)
    assert said.get("/rollouts/none/feedback/g1").status_code == 404


def test_who_only_reads_sees_the_commands_and_changes_nothing(said):
    fields = _fields(said, "withdraw") | {"reason": "because"}
    said.sign_in(Scope.READ)
    page = said.get(WHERE).text
    assert set(Forms(page).found) == {"/logout"}
    assert "kvflags feedback withdraw clb g1 --revision 1" in page
    assert said.send("feedback/g1/withdraw", fields).status_code == 403
    assert _counts(said) == (0, 1)


def test_the_commands_are_those_of_the_command_line(said):
    root = typer.main.get_command(command_line)
    for name, line in _twin(said)["cli"].items():
        words = shlex.split(line)
        assert words[:5] == ["kvflags", "feedback", name, "clb", "g1"]
        parameters = root.commands["feedback"].commands[name].params
        known = {option for one in parameters for option in (*one.opts, *one.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known, line


def _form(browser: Browser) -> str:
    return browser.forms()[f"{browser.page}/abort"]["form"]
