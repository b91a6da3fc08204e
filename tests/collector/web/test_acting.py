# SPDX-License-Identifier: Apache-2.0
"""What an operator does in a browser: signing in, the forms of a page, and every way in which they are refused."""

from __future__ import annotations

import pytest
import typer
from browsing import HTML, Forms
from starlette.testclient import TestClient

from kvflags_cli.app import app as command_line
from kvflags_collector.access.scopes import Scope
from kvflags_collector.access.sessions import COOKIE
from kvflags_collector.app import create_app
from kvflags_collector.rollout import course, flags
from kvflags_collector.settings import Settings
from kvflags_collector.web.acting import CHANGES
from kvflags_collector.web.views.actions import ACTIONS, refused


def test_without_a_session_a_page_shows_the_way_in_and_its_twin_an_error(browser):
    answer = browser.get()
    assert (answer.status_code, Forms(answer.text).found["/login"]["next"]) == (401, browser.page)
    assert "A token is needed." in answer.text
    twin = browser.http.get(f"{browser.page}.json")
    assert (twin.status_code, twin.json()["error"]["code"]) == (401, "unauthorized")


def test_signing_in_gives_a_strict_cookie_and_leads_back(browser):
    answer = browser.sign_in(Scope.READ, next=browser.page)
    assert (answer.status_code, answer.headers["location"]) == (303, browser.page)
    cookie = answer.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"))
    assert browser.guarded.secrets[Scope.READ] not in cookie
    assert browser.get().status_code == 200


@pytest.mark.parametrize("elsewhere", ["//evil.example", "https://evil.example", "/\\evil.example", "", "/a\r\nb: c"])
def test_nobody_is_led_elsewhere(browser, elsewhere):
    assert browser.sign_in(Scope.READ, next=elsewhere).headers["location"] == "/"


def test_over_https_the_cookie_is_for_https_only(browser):
    secure = TestClient(browser.guarded.app, "https://collector.example")
    answer = secure.post("/login", data={"token": browser.guarded.secrets[Scope.READ]}, follow_redirects=False)
    assert "Secure" in answer.headers["set-cookie"]


def test_a_wrong_token_is_told_so(browser):
    answer = browser.http.post("/login", data={"token": "kvf_wrong"})
    assert (answer.status_code, COOKIE in answer.cookies) == (400, False)
    assert "That token is not known here, expired or revoked." in answer.text


def test_the_api_takes_no_cookie(browser):
    browser.sign_in(Scope.ADMIN)
    assert browser.get().status_code == 200
    assert browser.http.get("/api/v1/flags").status_code == 401


def test_a_session_ends_with_its_day_and_with_its_token(browser):
    browser.sign_in(Scope.READ)
    browser.guarded.now += 12 * 3600 * 1_000_000
    assert browser.get().status_code == 401
    browser.sign_in(Scope.READ)
    assert browser.get().status_code == 200
    admin = browser.guarded.secrets[Scope.ADMIN]
    for one in browser.guarded.ask("GET", "/api/v1/tokens", admin).json()["items"]:
        if one["name"] == "the-read":
            browser.guarded.ask("POST", f"/api/v1/tokens/{one['id']}/revoke", admin, json={"author": "ann"})
    assert browser.get().status_code == 401


def test_a_cookie_that_we_never_gave_is_none(browser):
    browser.sign_in(Scope.READ)
    given = browser.http.cookies[COOKIE]
    for forged in (given[:-2] + "AA", "A" * len(given), given[:20], "", "%00", "a" * 4001):
        answer = browser.http.get(browser.page, headers=HTML | {"Cookie": f"{COOKIE}={forged}"})
        assert answer.status_code == 401, forged


def test_signing_out_ends_it(browser):
    browser.sign_in(Scope.READ)
    assert browser.http.post("/logout", follow_redirects=False).headers["location"] == "/login"
    assert browser.get().status_code == 401


def test_a_link_from_elsewhere_asks_once_more_for_the_strict_cookie(browser):
    answer = browser.http.get(browser.page, headers=HTML | {"Sec-Fetch-Site": "cross-site"})
    assert (answer.status_code, 'http-equiv="refresh"' in answer.text) == (401, True)
    answer = browser.http.get(browser.page, headers=HTML | {"Sec-Fetch-Site": "same-origin"})
    assert 'http-equiv="refresh"' not in answer.text


def test_who_only_reads_sees_no_form_and_sends_none(browser):
    browser.sign_in(Scope.READ)
    page = Forms(browser.get().text)
    assert set(page.found) == {"/logout"}
    assert "the-read only reads" in page.text
    assert browser.send("abort", {"revision": "2"}).status_code == 403
    assert browser.flag()["phase"] == "running"


def test_an_abort_is_one_form_and_needs_no_reason(browser):
    browser.sign_in(Scope.OPERATE)
    fields = browser.forms()[f"{browser.page}/abort"]
    answer = browser.send("abort", fields)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{browser.page}#banner")
    flag = browser.flag()
    assert (flag["phase"], flag["last_change"]) == (
        "aborted",
        {"action": "abort", "author": "the-operate", "reason": "stopped from the page"},
    )
    assert "0 treated engines still run: everything is off." in Forms(browser.get().text).text


def test_each_action_of_the_page_does_what_it_says(browser):
    browser.sign_in(Scope.OPERATE)
    for action, phase, killed in (
        ("pause", "paused", False),
        ("resume", "running", False),
        ("kill", "running", True),
        ("unkill", "running", False),
        ("abort", "aborted", False),
        ("start", "running", False),
    ):
        fields = browser.forms()[f"{browser.page}/{action}"] | {"reason": f"now {action}"}
        assert browser.send(action, fields).status_code == 303, action
        flag = browser.flag()
        assert (flag["phase"], flag["kill_switch"], flag["last_change"]["reason"]) == (phase, killed, f"now {action}")


def test_a_stale_page_is_told_what_changed_and_may_try_again(browser):
    browser.sign_in(Scope.OPERATE)
    fields = browser.forms()[f"{browser.page}/abort"] | {"reason": "errors"}
    with browser.guarded.db.write() as conn:
        course.pause(conn, "clb", author="bob", reason="<b>lunch</b>", now=browser.guarded.now)
    answer = browser.send("abort", fields)
    page = Forms(answer.text)
    assert answer.status_code == 409
    assert "Revision 3: pause by bob. “<b>lunch</b>”" in page.text
    assert browser.flag()["phase"] == "paused"
    again = page.found[f"{browser.page}/abort"]
    assert (again["revision"], again["reason"]) == ("3", "errors")
    assert browser.send("abort", again).status_code == 303
    assert browser.flag()["phase"] == "aborted"


def test_a_form_of_another_site_or_session_changes_nothing(browser):
    browser.sign_in(Scope.OPERATE)
    fields = browser.forms()[f"{browser.page}/abort"]
    theirs = fields | {"form": "0" * 64}
    assert browser.send("abort", theirs).status_code == 400
    assert browser.send("abort", {"revision": fields["revision"]}).status_code == 400
    assert browser.send("abort", fields, **{"Sec-Fetch-Site": "cross-site"}).status_code == 400
    browser.sign_in(Scope.ADMIN)
    assert browser.send("abort", fields).status_code == 400
    assert browser.flag()["phase"] == "running"


@pytest.mark.parametrize(
    ("action", "wrong", "says"),
    [
        ("pause", {"reason": " "}, "reason: "),
        ("pause", {"reason": "a\x1b[2J"}, "has control characters"),
        ("abort", {"revision": "x"}, "which revision"),
        ("default", {"reason": "ready", "typed": "cl"}, "type the name of the flag: clb"),
        ("promote", {"reason": "go"}, "has no step to go on to"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_changes(browser, action, wrong, says):
    browser.sign_in(Scope.OPERATE)
    fields = browser.forms()[f"{browser.page}/abort"] | wrong
    answer = browser.send(action, fields)
    assert (answer.status_code, says in answer.text) == (409 if action == "promote" else 400, True)
    assert browser.flag()["revision"] == 2


def test_what_is_no_form_is_refused(browser):
    browser.sign_in(Scope.OPERATE)
    url = f"{browser.page}/abort"
    assert browser.http.post(url, json={"revision": 2}).status_code == 400
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    assert browser.http.post(url, content=b"&".join(b"a=%d" % n for n in range(99)), headers=kind).status_code == 400
    assert browser.http.post(url, content=b"reason=%ff", headers=kind).status_code == 400
    assert browser.http.post(url, content=b"a=" + b"b" * 70_000, headers=kind).status_code == 413
    assert browser.send("nothing", {}).status_code == 404


def test_on_loopback_whoever_acts_says_who(db):
    with TestClient(create_app(Settings(db=db.url), db, clock=lambda: 0), "http://127.0.0.1") as http:
        who = {"author": "ann", "reason": "go", "now": 0}
        with db.write() as conn:
            flags.create(conn, key="clb", feature="cross_layer_blocks", baseline_s=0, quiet_s=0, **who)
        fields = Forms(http.get("/rollouts/clb").text).found["/rollouts/clb/abort"]
        assert http.post("/rollouts/clb/abort", data=fields).status_code == 400
        assert http.post("/rollouts/clb/abort", data=fields | {"author": "bob"}).status_code == 200
    with db.read() as conn:
        assert flags.shown(conn, "clb", 0)["last_change"]["author"] == "bob"


@pytest.mark.parametrize("verdict", ["hold", "regression", "invalid"])
def test_nothing_grows_while_the_verdict_forbids_it_and_everything_can_be_stopped(verdict):
    assert {name for name, action in ACTIONS.items() if refused(action, verdict)} == {
        *("resume", "start", "promote", "default")
    }


def test_every_action_has_its_change_and_its_command():
    assert ACTIONS.keys() == CHANGES.keys()
    rollout = typer.main.get_command(command_line).commands["rollout"].commands
    for action in ACTIONS.values():
        name, _, *options = action.command.split()
        known = {option for parameter in rollout[name].params for option in parameter.opts}
        assert {"--reason", *(one for one in options if one.startswith("--"))} <= known, action.command
