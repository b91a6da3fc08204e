# SPDX-License-Identifier: Apache-2.0
"""What is done to one deployment, over HTTP; changes that happen once; revisions as ETags."""

import pytest

WHO = {"author": "ann", "reason": "because"}


@pytest.fixture
def observed(api):
    api.create()
    api.pair()
    api.aim(percent=100)
    return api


def test_opts_declarations_force_and_reopen(observed):
    api, where = observed, {"deployment": "c/ns/a", **WHO}
    told = api("PUT", "/api/v1/flags/clb/opts", {"opted": "out", **where})
    assert told == (200, {"deployment": "c/ns/a", "opted": "out", "changed": True})
    assert api("PUT", "/api/v1/flags/clb/opts", {"opted": None, **where})[1]["changed"]
    status, declared = api("PUT", "/api/v1/declarations", {"isolation": "recreate", "labels": {"a": "b"}, **where})
    assert (status, declared["declared"]["labels"]) == (200, {"a": "b"})
    status, forced = api("POST", "/api/v1/flags/clb/pins", {"generation": "g2", "variant": "on", **where})
    assert (status, forced["pin"]["variant"]) == (201, "on")
    assert api.pair("g2")[0]["reason"] == "forced"
    assert len(api("GET", "/api/v1/flags/clb/treated")[1]["items"]) == 2
    status, reopened = api("POST", "/api/v1/flags/clb/reopen", {"generation": "g2", **where})
    assert (status, reopened["closed"]["epoch"]) == (200, 1)
    history = api("GET", "/api/v1/flags/clb/history")[1]["items"]
    assert [one["action"] for one in history][:3] == ["reopen", "force", "declare"]
    assert {one["author"] for one in history} == {"ann"}


def test_pause_resume_and_undo(observed):
    assert observed("POST", "/api/v1/flags/clb/pause", WHO)[1]["phase"] == "paused"
    assert observed("POST", "/api/v1/flags/clb/resume", WHO)[1]["phase"] == "running"
    observed.aim(percent=5)
    assert observed("POST", "/api/v1/flags/clb/undo", WHO)[1]["target"] == {"share": 100_000, "count": None}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/api/v1/flags/clb/opts", {"deployment": "c/ns/a", "opted": "maybe"}),
        ("PUT", "/api/v1/flags/clb/opts", {"deployment": "c/ns/nobody", "opted": "in"}),
        ("PUT", "/api/v1/declarations", {"deployment": "c/ns/a", "prefill": 0}),
        ("PUT", "/api/v1/declarations", {"deployment": "c/ns/a", "labels": {"a b": "c"}}),
        ("PUT", "/api/v1/declarations", {"deployment": "c/ns/a", "backend": "FLASH"}),
        ("POST", "/api/v1/flags/clb/pins", {"deployment": "c/ns/a", "generation": "g1", "variant": "on"}),
        ("POST", "/api/v1/flags/clb/reopen", {"deployment": "c/ns/a", "generation": "g9"}),
    ],
)
def test_what_is_refused_changes_nothing(observed, method, path, body):
    before = observed.dump()
    status, answer = observed(method, path, body | WHO)
    assert status in {400, 404, 409}
    assert answer["error"]["hint"]
    assert observed.dump() == before


def test_a_repeated_request_is_done_once_and_answered_alike(api):
    api.create()
    body = {"percent": 10, **WHO}
    first = api("PUT", "/api/v1/flags/clb/target", body, headers={"Idempotency-Key": "k"})
    api.now += 1_000_000
    assert api("PUT", "/api/v1/flags/clb/target", body, headers={"Idempotency-Key": "k"}) == first
    assert api("GET", "/api/v1/flags/clb")[1]["revision"] == 2
    status, answer = api("PUT", "/api/v1/flags/clb/target", body | {"percent": 11}, headers={"Idempotency-Key": "k"})
    assert (status, answer["error"]["code"]) == (409, "key_reused")


def test_a_refused_request_may_be_tried_again_under_its_key(api):
    api.create()
    headers = {"Idempotency-Key": "k"}
    assert api("POST", "/api/v1/flags/clb/resume", WHO, headers=headers)[0] == 409
    api.aim(percent=1)
    assert api("POST", "/api/v1/flags/clb/resume", WHO, headers=headers)[0] == 200


def test_an_answer_is_kept_for_a_day(api):
    api.create()
    headers = {"Idempotency-Key": "k"}
    api("PUT", "/api/v1/flags/clb/target", {"percent": 10, **WHO}, headers=headers)
    api.now += 86_401 * 1_000_000
    api("PUT", "/api/v1/flags/clb/target", {"percent": 11, **WHO}, headers={"Idempotency-Key": "other"})
    with api.db.read() as conn:
        assert conn.exec_driver_sql("SELECT key FROM answers").fetchall() == [("other",)]


def test_if_match_is_the_revision_that_a_change_is_based_on(api):
    api.create()
    tag = api.http.get("/api/v1/flags/clb").headers["ETag"]
    assert tag == '"1"'
    assert api("PUT", "/api/v1/flags/clb/target", {"percent": 1, **WHO}, headers={"If-Match": tag})[0] == 200
    status, answer = api("PUT", "/api/v1/flags/clb/target", {"percent": 2, **WHO}, headers={"If-Match": tag})
    assert (status, answer["error"]["code"]) == (409, "stale_revision")
    assert answer["error"]["detail"]["since"][0]["author"] == "ann"
    status, answer = api("PUT", "/api/v1/flags/clb/target", {"percent": 2, **WHO}, headers={"If-Match": "nonsense"})
    assert (status, answer["error"]["code"]) == (400, "invalid")
