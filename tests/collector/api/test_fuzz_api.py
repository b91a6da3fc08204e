# SPDX-License-Identifier: Apache-2.0
"""Requests made from our own OpenAPI document, good and bad: no failure of ours, no answer outside the document.

KVFLAGS_SOAK_CASES sets how many for each operation (`make soak`: 300), KVFLAGS_SOAK_SEED which.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from listening import listening
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from kvflags_collector.access import tokens
from kvflags_collector.access.scopes import Scope

CASES = int(os.environ.get("KVFLAGS_SOAK_CASES", "6"))
SEED = int(os.environ.get("KVFLAGS_SOAK_SEED", "1"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
# What exists, so that a request reaches more than the refusal of a name nobody has.
KNOWN = {"key": ["clb"], "registration_id": ["g1-prefill", "g1-decode"], "token_id": ["1"]}


@pytest.fixture
def session(api) -> Iterator[requests.Session]:
    """An operator's, who need not sign each change; two engines run under a flag."""
    api.create()
    api.pair()
    with api.db.write() as conn:
        made = tokens.create(conn, name="ann", scope=Scope.ADMIN, author="ann", now=api.now)
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {made['token']}"
        yield session


def aimed(case: Any, data: st.DataObject) -> None:
    """Three in four requests are about what exists."""
    for name in sorted(KNOWN.keys() & case.path_parameters.keys()):
        if data.draw(st.integers(0, 3)):
            case.path_parameters[name] = data.draw(st.sampled_from(KNOWN[name]))
    if isinstance(case.body, dict) and isinstance(case.body.get("file"), dict) and "key" in case.path_parameters:
        case.body["file"]["key"] = case.path_parameters["key"]


def cases(operation: Any) -> st.SearchStrategy[Any]:
    """As the document has them, and, where anything can be wrong with a request, against it."""
    good = operation.as_strategy(GenerationMode.POSITIVE)
    takes = operation.body or operation.query or operation.headers
    return good | operation.as_strategy(GenerationMode.NEGATIVE) if takes else good


def test_no_request_fails_and_no_answer_is_outside_the_document(api, session):
    answered: Counter[int] = Counter()
    with listening(api.another()) as url:
        document = schemathesis.openapi.from_url(f"{url}/openapi.json")
        document.config.generation.update(codec="ascii")
        for found in document.get_all_operations():
            operation = found.ok()

            @seed(SEED)
            @settings(
                max_examples=CASES,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=cases(operation), data=st.data())
            def asks(case: Any, data: st.DataObject) -> None:
                aimed(case, data)
                response = case.call(base_url=url, session=session, timeout=30)
                case.validate_response(response, checks=CHECKS)
                answered[response.status_code] += 1

            asks()
    print(f"{answered.total():,} requests, by status: {dict(sorted(answered.items()))}")  # noqa: T201 - of a soak this is what is kept
    # Else all of it was refused at the door.
    assert sum(number for status, number in answered.items() if status < 300) > sum(answered.values()) / 10, answered


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/flags/%00"),
        ("GET", "/api/v1/flags/a%0d%0aclb"),
        ("POST", "/api/v1/engines/%00/heartbeat"),
        ("GET", "/api/v1/flags/clb/explain?deployment=a%00"),
        ("GET", "/rollouts/%1b%5b31m"),
    ],
)
def test_control_characters_name_nothing(api, method, path):
    status, answer = api(method, path, {"engine_id": "e"} if method == "POST" else None)
    assert (status, answer["error"]["message"]) == (400, "the address has control characters")


def test_a_name_that_is_not_utf8_is_no_flag(api):
    assert api("GET", "/api/v1/flags/%ff%fe")[0] == 404


def test_a_revision_that_no_flag_can_have_is_refused(api):
    api.create()
    status, answer = api.aim(percent=1, revision=2**31)
    assert (status, answer["error"]["code"]) == (400, "invalid")
