# SPDX-License-Identifier: Apache-2.0
"""Feedback that people give: what is filled in, what is kept, what is refused."""

from __future__ import annotations

import pytest

PATH = "/api/v1/flags/clb/feedback"
SAID = {"deployment": "c/ns/a", "sign": "negative", "tags": ["latency"], "comment": "p99 is up", "author": "bob"}
WHY = {"author": "ann", "reason": "looked again"}


@pytest.fixture
def pair(api):
    api.create()
    api.pair()
    return api


def test_what_is_known_is_filled_in(pair):
    status, given = pair("POST", PATH, SAID | {"tags": ["quality", "latency", "quality"]})
    assert (status, given["id"], given["source"]) == (201, "g1", "given")
    assert given["tags"] == ["latency", "quality"]
    assert (given["generation"], given["epoch"], given["variant"]) == ("g1", 1, "off")
    assert [engine["role"] for engine in given["engines"]] == ["decode", "prefill"]
    assert given["releases"] == {"vllm": ["0.32.0"], "nixl": [], "kvflags": ["1.0"]}
    assert given["recorded_at"].startswith("2027-01-15T08:00:00")
    assert pair("GET", PATH)[1]["items"] == [{k: v for k, v in given.items() if k != "revisions"}]


def test_every_revision_is_kept(pair):
    pair("POST", PATH, SAID)
    pair.now += 1_000_000
    status, edited = pair("PUT", f"{PATH}/g1", WHY | {"sign": "positive", "revision": 1})
    assert (status, edited["sign"], edited["comment"], edited["author"], edited["changed_by"]) == (
        200,
        "positive",
        "p99 is up",
        "bob",
        "ann",
    )
    stale = pair("PUT", f"{PATH}/g1", WHY | {"comment": "worse", "revision": 1})
    assert (stale[0], stale[1]["error"]["code"]) == (409, "stale_revision")
    for _ in range(2):
        status, ended = pair("POST", f"{PATH}/g1/withdraw", WHY)
        assert (status, ended["withdrawn"]) == (200, True)
    assert [(one["action"], one["author"], one["reason"], one["sign"]) for one in ended["revisions"]] == [
        ("give", "bob", None, "negative"),
        ("edit", "ann", "looked again", "positive"),
        ("withdraw", "ann", "looked again", "positive"),
    ]
    again = pair("PUT", f"{PATH}/g1", WHY | {"comment": "worse"})
    assert (again[0], again[1]["error"]["code"]) == (409, "wrong_phase")
    assert pair("GET", f"{PATH}/g1")[1] == ended


def test_the_report_counts_what_stands(pair):
    pair("POST", PATH, SAID)
    pair("POST", PATH, SAID | {"sign": "positive"})
    pair("POST", f"{PATH}/g2/withdraw", WHY)
    found = pair("GET", "/api/v1/flags/clb/report")[1]["feedback"]
    assert (found["positive"], found["negative"], found["withdrawn"]) == (0, 1, 1)
    assert [one["id"] for one in found["items"]] == ["g1"]


def test_a_request_sent_twice_gives_once(pair):
    answers = [pair("POST", PATH, SAID, headers={"Idempotency-Key": "k"})[1] for _ in range(2)]
    assert answers[0] == answers[1]
    assert len(pair("GET", PATH)[1]["items"]) == 1


def test_a_comment_can_do_nothing_where_it_is_shown(pair):
    given = pair("POST", PATH, SAID | {"comment": "\x1b[31mred\x1b[0m \u202egnp.exe nul\0"})[1]
    assert given["comment"] == "\\x1b[31mred\\x1b[0m \\u202egnp.exe nul\\x00"


@pytest.mark.parametrize(
    ("wrong", "status", "code"),
    [
        ({"comment": "ü" * 5_001}, 400, "invalid"),
        ({"comment": " \n"}, 400, "invalid"),
        ({"tags": ["price"]}, 400, "invalid"),
        ({"sign": "neutral"}, 400, "invalid"),
        ({"author": "a\x1b[2J"}, 400, "invalid"),
        ({"deployment": "c/ns/other"}, 404, "unknown_deployment"),
    ],
)
def test_what_is_refused(pair, wrong, status, code):
    found = pair("POST", PATH, SAID | wrong)
    assert (found[0], found[1]["error"]["code"]) == (status, code)
    assert pair("GET", PATH)[1]["items"] == []


@pytest.mark.parametrize("name", ["g1", "m1", "1", "g", "g99999999999", "g²"])
def test_there_is_no_such_feedback(pair, name):
    found = pair("POST", f"{PATH}/{name}/withdraw", WHY)
    assert (found[0], found[1]["error"]["code"]) == (404, "unknown_feedback")


def test_an_edit_that_changes_nothing_is_refused(pair):
    pair("POST", PATH, SAID)
    assert pair("PUT", f"{PATH}/g1", WHY)[0] == 400


def test_10_000_bytes_are_let_in(pair):
    assert pair("POST", PATH, SAID | {"comment": "ü" * 5_000})[0] == 201
