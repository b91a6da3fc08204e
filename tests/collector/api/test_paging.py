# SPDX-License-Identifier: Apache-2.0
"""Lists in pages: bounded, in a stable order while items come and go, and with cursors that nobody can make up."""

import base64
import json

import pytest
from sqlalchemy import update

from kvflags_collector.access import tokens
from kvflags_collector.access.scopes import Scope
from kvflags_collector.store.control_tables import engines, registrations

LISTS = ("deployments", "engines", "flags", "flags/clb/history", "tokens")


@pytest.fixture
def full(api):
    """Six of each but flags, of which only the standing one of a feature is listed; two engines under one front end."""
    api.create()
    for number in range(5):
        api.now += 1
        api.register(f"r{number}", deployment=f"c/ns/{number}")
        api.aim(percent=number)
        _token(api, f"t{number}")
    api.register("nameless", deployment=None)
    api.beat("r2", engine_id="rank-0")
    api.beat("r2", engine_id="rank-1")
    body = {"isolation": "recreate", "author": "ann", "reason": "x"}
    api("PUT", "/api/v1/declarations", body | {"deployment": "c/ns/0"})
    return api


@pytest.fixture
def troubled(api):
    """Four generations whose prefill and decode, told to be on, run different layouts; two remarks on them."""
    api.create()
    for number in range(4):
        api.now += 1
        for role, layout in (("prefill", "BHLNC"), ("decode", "LBHNC")):
            api.register(f"{role}{number}", deployment=f"c/ns/{number}", role=role, running="on")
            api.beat(f"{role}{number}", layout={"resolved": layout})
    for number in range(2):
        said = {"deployment": f"c/ns/{number}", "sign": "negative", "comment": "slow", "author": "ann"}
        assert api("POST", "/api/v1/flags/clb/feedback", said)[0] == 201
    return api


def _token(api, name):
    with api.db.write() as conn:
        tokens.create(conn, name=name, scope=Scope.READ, author="ann", now=api.now)


def _pages(api, path, between=lambda: None, **query):
    """All items, asked for in pages."""
    items, cursor = [], None
    while True:
        asked = query if cursor is None else query | {"cursor": cursor}
        status, page = api("GET", f"/api/v1/{path}", params=asked)
        assert status == 200, page
        assert len(page["items"]) <= query["limit"]
        items += page["items"]
        cursor = page["next"]
        if cursor is None:
            return items
        between()


@pytest.mark.parametrize("path", LISTS)
def test_pages_of_any_size_hold_what_the_whole_list_holds(full, path):
    _, whole = full("GET", f"/api/v1/{path}")
    assert whole["next"] is None
    for limit in (1, 2, 3, len(whole["items"]), 1000):
        assert _pages(full, path, limit=limit) == whole["items"]
    assert len(whole["items"]) == {"flags": 1, "tokens": 5, "engines": 7}.get(path, 6 if path == "deployments" else 7)


@pytest.mark.parametrize(("path", "number"), [("alarms", 4), ("flags/clb/feedback", 6), ("flags/clb/treated", 8)])
def test_pages_of_what_is_amiss(troubled, path, number):
    _, whole = troubled("GET", f"/api/v1/{path}")
    assert (len(whole["items"]), whole["next"]) == (number, None)
    for limit in (1, 3, number, 1000):
        assert _pages(troubled, path, limit=limit) == whole["items"]


def test_alarms_that_stand_come_first_then_the_newest(troubled):
    # The prefill of one comes over, so that its alarm ends.
    troubled.beat("prefill2", seq=2, layout={"resolved": "LBHNC"})
    named = [(item["deployment"], item["ended_at"] is None) for item in _pages(troubled, "alarms", limit=1)]
    assert named == [("c/ns/3", True), ("c/ns/1", True), ("c/ns/0", True), ("c/ns/2", False)]


def test_deployments_without_a_name_come_last(full):
    names = [item["deployment"] for item in _pages(full, "deployments", limit=2)]
    assert names == [*(f"c/ns/{number}" for number in range(5)), None]


def test_what_comes_meanwhile_neither_repeats_nor_hides_an_item(full):
    new = iter(range(100))

    def between():
        number = next(new)
        full.now += 1
        # One before and one behind the place, of each kind; one that starts becomes an engine, another ends.
        full.register(f"n{number}", deployment=f"c/ns/0-{number}")
        full.register(f"z{number}", deployment=f"d/ns/{number}") if number < 3 else None
        full.aim(percent=50 + number)
        _token(full, f"n{number}")
        full.beat(f"r{number % 5}", engine_id=f"engine-{number % 5}")

    for path, name in (("engines", "registration_id"), ("flags/clb/history", "recorded_at"), ("tokens", "id")):
        before = [item[name] for item in full("GET", f"/api/v1/{path}")[1]["items"]]
        listed = [item[name] for item in _pages(full, path, between, limit=2)]
        assert list(dict.fromkeys(listed)) == list(dict.fromkeys(before)), path
    named = [item["deployment"] for item in _pages(full, "deployments", between, limit=3)]
    assert len(named) == len(set(named))
    assert {f"c/ns/{number}" for number in range(5)} < set(named)


def test_the_live_ones_only(full):
    with full.db.write() as conn:
        for table, column in ((registrations, registrations.c.id), (engines, engines.c.registration)):
            conn.execute(update(table).where(column.in_(["r0", "r2"])).values(lease_until_us=full.now))
    every = _pages(full, "engines", limit=3)
    live = _pages(full, "engines", limit=1, live=True)
    assert live == [item for item in every if item["live"]]
    assert [item["registration_id"] for item in live] == ["r4", "nameless", "r3", "r1"]


def test_deployments_by_the_beginning_of_their_name(full):
    full.register("odd", deployment="c_ns/%a")
    for prefix, number in (("c/ns/", 5), ("c/ns/3", 1), ("c_", 1), ("c_ns/%", 1), ("%", 0), ("_", 0)):
        assert len(_pages(full, "deployments", limit=2, prefix=prefix)) == number, prefix


@pytest.mark.parametrize("path", [*LISTS, "alarms", "flags/clb/feedback", "flags/clb/treated"])
def test_a_cursor_of_another_list_or_of_nobody_is_refused(full, path):
    _, page = full("GET", "/api/v1/tokens", params={"limit": 2})
    name = {f"flags/clb/{of}": f"{of} clb" for of in ("history", "feedback", "treated")}.get(path, path)
    made_up = [[name], [name, 2**63, "a", "b"], [name, True, 1, 2], [name, "a\x00", "b"], [name, None], {"a": 1}, 7]
    cursors = ["", "%", "ÿ", "=", *(base64.urlsafe_b64encode(json.dumps(one).encode()).decode() for one in made_up)]
    for cursor in [*cursors, *([] if path == "tokens" else [page["next"]])]:
        status, answer = full("GET", f"/api/v1/{path}", params={"cursor": cursor})
        assert (status, answer["error"]["message"]) == (400, "the cursor is not one of this list"), cursor


@pytest.mark.parametrize("limit", [0, -1, 1001, "many"])
def test_pages_are_bounded(full, limit):
    assert full("GET", "/api/v1/engines", params={"limit": limit})[0] == 400


def test_the_openapi_document_says_so(api):
    document = api("GET", "/openapi.json")[1]
    under = [f"flags/{{key}}/{of}" for of in ("history", "feedback", "treated")]
    for path in ("alarms", "deployments", "engines", "flags", "tokens", *under):
        operation = document["paths"][f"/api/v1/{path}"]["get"]
        assert {"limit", "cursor"} <= {one["name"] for one in operation["parameters"]}
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/Listed"}
