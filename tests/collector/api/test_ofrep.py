# SPDX-License-Identifier: Apache-2.0
"""OFREP: the published shapes, the quirks of real clients, and that asking never pins."""

import pytest

REASONS = {"STATIC", "TARGETING_MATCH", "SPLIT", "DISABLED", "UNKNOWN"}
ONE, ALL = "/ofrep/v1/evaluate/flags/clb", "/ofrep/v1/evaluate/flags"
A = {"context": {"targetingKey": "c/ns/a"}}


def ask(api, path=ONE, body=A, **headers):
    return api("POST", path, body, headers=headers)


def test_a_flag_is_evaluated_as_its_pin_stands_and_in_the_published_shape(api):
    api.create()
    api.pair()
    api.aim(percent=100)
    # What runs is answered, and what the next generation would run where that is asked.
    status, pinned = ask(api)
    assert (status, pinned["value"], pinned["variant"], pinned["reason"]) == (200, False, "off", "DISABLED")
    status, following = ask(api, body={"context": {"targetingKey": "c/ns/a", "generation": "g2"}})
    assert (following["value"], following["variant"], following["reason"]) == (True, "on", "SPLIT")
    assert following["metadata"]["arm"] == "treatment"
    for answer in (pinned, following):
        assert set(answer) == {"key", "value", "variant", "reason", "metadata"}
        assert answer["reason"] in REASONS
        assert all(isinstance(value, bool | str | int | float) for value in answer["metadata"].values())


def test_asking_changes_nothing(api):
    api.create()
    api.pair()
    api.aim(percent=100)
    before = api.dump()
    for body in (A, {"context": {"targetingKey": "c/ns/a", "generation": "g7"}}, {"context": {"targetingKey": "new"}}):
        assert ask(api, body=body)[0] == ask(api, ALL, body)[0] == 200
    assert api.dump() == before


def test_a_deployment_nobody_heard_of_is_off_with_a_standard_reason(api):
    api.create()
    api.aim(percent=100)
    status, answer = ask(api, body={"context": {"targetingKey": "c/ns/new"}})
    assert (status, answer["value"], answer["reason"]) == (200, False, "UNKNOWN")
    assert answer["metadata"]["reason"] == "not_observed"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "INVALID_CONTEXT"),
        ([], "INVALID_CONTEXT"),
        ({"context": []}, "INVALID_CONTEXT"),
        ({"context": {}}, "TARGETING_KEY_MISSING"),
        ({"context": {"targetingKey": ""}}, "TARGETING_KEY_MISSING"),
        ({"context": {"targetingKey": 7}}, "INVALID_CONTEXT"),
        ({"context": {"targetingKey": "a b\n"}}, "INVALID_CONTEXT"),
        ({"context": {"targetingKey": "a", "generation": 7}}, "INVALID_CONTEXT"),
    ],
)
def test_bad_contexts_are_refused_in_the_protocols_shape(api, body, code):
    status, answer = ask(api, body=body)
    assert (status, answer["errorCode"], answer["key"]) == (400, code, "clb")
    assert answer["errorDetails"]
    status, answer = ask(api, ALL, body)
    assert (status, answer["errorCode"], "key" in answer) == (400, code, False)


def test_what_is_no_json_and_what_is_no_flag(api):
    response = api.http.post(ONE, content=b"{")
    assert (response.status_code, response.json()["errorCode"]) == (400, "PARSE_ERROR")
    assert ask(api)[0] == 404
    assert ask(api)[1]["errorCode"] == "FLAG_NOT_FOUND"


def test_all_flags_have_an_etag_over_flags_and_context(api):
    api.create()
    api.pair()
    first = api.http.post(ALL, json=A)
    tag = first.headers["ETag"]
    assert [flag["key"] for flag in first.json()["flags"]] == ["clb"]
    same = api.http.post(ALL, json=A, headers={"If-None-Match": tag})
    assert (same.status_code, same.content) == (304, b"")
    other = {"context": {"targetingKey": "c/ns/a", "user": "ann"}}
    assert api.http.post(ALL, json=other, headers={"If-None-Match": tag}).status_code == 200
    api.aim(percent=50)
    assert api.http.post(ALL, json=A, headers={"If-None-Match": tag}).status_code == 200
