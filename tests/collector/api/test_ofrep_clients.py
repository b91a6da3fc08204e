# SPDX-License-Identifier: Apache-2.0
"""OFREP as others see it: every answer has the protocol's shape, and the public Python provider reads each rightly."""

import json
from contextlib import contextmanager

import pytest
from jsonschema import Draft202012Validator
from listening import listening
from openfeature import api as openfeature
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason

from kvflags_collector.api import ofrep_shapes

ONE, ALL = "/ofrep/v1/evaluate/flags/clb", "/ofrep/v1/evaluate/flags"
A = "c/ns/a"


def conforms(response, shapes):
    """Against the shape of the status it has, which must be one that the protocol knows."""
    shape = shapes[response.status_code].get("content", {}).get("application/json", {}).get("schema")
    if shape is None:
        assert response.content == b""
    else:
        assert response.headers["content-type"] == "application/json"
        Draft202012Validator(shape).validate(response.json())
    return response.status_code


def situations(api):
    """A flag in every state that OFREP can see, one after the other; what it is called, and whether A is on."""
    api.create()
    yield "draft", False
    api.pair()
    api.aim(percent=100)
    yield "pinned off before", False
    api.pair("g2")
    yield "treated", True
    api("PUT", "/api/v1/flags/clb/kill-switch", {"on": True, "author": "ann", "reason": "r"})
    yield "condemned, and told the same", True
    api("PUT", "/api/v1/flags/clb/kill-switch", {"on": False, "author": "ann", "reason": "r"})
    api("PUT", "/api/v1/flags/clb/opts", {"deployment": A, "opted": "out", "author": "ann", "reason": "r"})
    api.pair("g3")
    yield "opted out", False
    api("POST", "/api/v1/flags/clb/abort", {"author": "ann", "reason": "r"})
    api.pair("g4")
    yield "aborted", False


def test_every_answer_in_every_state_has_the_protocols_shape(api):
    for name, on in situations(api):
        for context in ({"targetingKey": A}, {"targetingKey": A, "generation": "g2"}, {"targetingKey": "new"}):
            one, every = (api.http.post(path, json={"context": context}) for path in (ONE, ALL))
            assert conforms(one, ofrep_shapes.SINGLE) == conforms(every, ofrep_shapes.BULK) == 200
            assert every.json()["flags"] == [one.json()]
            again = api.http.post(ALL, json={"context": context}, headers={"If-None-Match": every.headers["ETag"]})
            assert conforms(again, ofrep_shapes.BULK) == 304
        assert api.http.post(ONE, json={"context": {"targetingKey": A}}).json()["value"] is on, name


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 60_000, b"null", b"{}", b'{"context":{"targetingKey":[]}}', b'{"context":7}', b"\xff"]
)
def test_every_refusal_has_the_protocols_shape(api, body):
    api.create()
    assert conforms(api.http.post(ONE, content=body), ofrep_shapes.SINGLE) == 400
    assert conforms(api.http.post(ALL, content=body), ofrep_shapes.BULK) == 400
    missing = api.http.post(f"{ALL}/none", json={"context": {"targetingKey": A}})
    assert conforms(missing, ofrep_shapes.SINGLE) == 404


def test_what_was_put_away_is_no_flag_any_more(api):
    api.create()
    api("POST", "/api/v1/flags/clb/abort", {"author": "ann", "reason": "r"})
    assert api("POST", "/api/v1/flags/clb/archive", {"author": "ann", "reason": "r"})[0] == 200
    assert conforms(api.http.post(ONE, json={"context": {"targetingKey": A}}), ofrep_shapes.SINGLE) == 404
    assert api.http.post(ALL, json={"context": {"targetingKey": A}}).json() == {"flags": []}


@contextmanager
def without(db, table):
    """A database that cannot answer what is asked."""
    for old, new in ((table, "elsewhere"), ("elsewhere", table)):
        with db.write() as conn:
            conn.exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}")
        if new == "elsewhere":
            yield


def test_a_database_that_fails_is_told_in_the_protocols_shape(api):
    body = {"context": {"targetingKey": A}}
    with without(api.db, "flags"):
        one, every = (api.http.post(path, json=body) for path in (ONE, ALL))
    assert {conforms(one, ofrep_shapes.SINGLE), conforms(every, ofrep_shapes.BULK)} <= {500, 503}
    assert conforms(api.http.post(ALL, json=body), ofrep_shapes.BULK) == 200


@pytest.mark.parametrize("given", ["W/{tag}", '"other", {tag}', "*"])
def test_a_tag_may_be_weak_or_one_of_several(api, given):
    api.create()
    body = {"context": {"targetingKey": A}}
    tag = api.http.post(ALL, json=body).headers["ETag"]
    answered = api.http.post(ALL, json=body, headers={"If-None-Match": given.format(tag=tag)})
    assert conforms(answered, ofrep_shapes.BULK) == 304
    assert api.http.post(ALL, json=body, headers={"If-None-Match": '"other"'}).status_code == 200


@contextmanager
def reading(api, **settings):
    """The public provider behind the SDK, asking a collector on the same database for deployment A."""
    with listening(api.another(**settings)) as url:
        provider = OFREPProvider(url)
        openfeature.set_provider(provider, "ofrep")
        try:
            client = openfeature.get_client("ofrep")
            client.context = EvaluationContext(A)
            yield client
        finally:
            openfeature.clear_providers()
            provider.session.close()


def test_the_public_provider_reads_every_state_over_a_socket(api):
    with reading(api) as client:
        for name, on in situations(api):
            found = client.get_boolean_details("clb", not on)
            assert (found.value, found.variant, found.error_code) == (on, "on" if on else "off", None), name
            assert found.flag_metadata["contextId"] == A


def test_the_public_provider_reads_every_type(api):
    """All our flags are booleans: asked for another type it says so and gives the default of the code."""
    api.create()
    with reading(api) as client:
        assert client.get_boolean_details("clb", True).reason == Reason.DISABLED
        for ask, default in (
            (client.get_string_details, "x"),
            (client.get_float_details, 0.5),
            (client.get_object_details, {"a": 1}),
        ):
            found = ask("clb", default)
            assert (found.value, found.error_code) == (default, ErrorCode.TYPE_MISMATCH)
        # Python's bool is an int, and the provider takes it for one.
        assert client.get_integer_details("clb", 7).value == 0


def test_the_public_provider_is_told_what_is_wrong(api):
    api.create()
    with reading(api) as client:
        missing = client.get_boolean_details("none", True)
        assert (missing.value, missing.error_code) == (True, ErrorCode.FLAG_NOT_FOUND)
        client.context = EvaluationContext()
        nobody = client.get_boolean_details("clb", True, EvaluationContext(attributes={"user": "ann"}))
        assert (nobody.value, nobody.error_code) == (True, ErrorCode.TARGETING_KEY_MISSING)
        odd = client.get_boolean_details("clb", True, EvaluationContext("a\nb"))
        assert (odd.value, odd.error_code) == (True, ErrorCode.INVALID_CONTEXT)


def test_the_public_provider_needs_a_token_that_may_read(api):
    with reading(api, require_tokens=True) as client:
        refused = client.get_boolean_details("clb", True)
        assert (refused.value, refused.error_message) == (True, "unauthorized")


def test_our_openapi_document_has_the_protocols_shapes(api):
    document = api.http.get("/openapi.json").json()["paths"]
    for path, shapes in ((f"{ALL}/{{key}}", ofrep_shapes.SINGLE), (ALL, ofrep_shapes.BULK)):
        for status, shape in shapes.items():
            assert document[path]["post"]["responses"][str(status)] == json.loads(json.dumps(shape))
