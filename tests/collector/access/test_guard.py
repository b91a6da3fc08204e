# SPDX-License-Identifier: Apache-2.0
"""Denied requests: their status, their words on each kind of route, and nothing of their body read."""

from __future__ import annotations

import asyncio
import json

import pytest
from google.rpc.status_pb2 import Status

from kvflags_collector.access.scopes import Scope

_NO_TOKEN = "a token is needed"


def test_without_a_token_the_api_says_what_to_do(guarded):
    answer = guarded.ask("GET", "/api/v1/flags")
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Bearer realm="kvflags"')
    error = answer.json()["error"]
    assert (error["code"], error["message"]) == ("unauthorized", _NO_TOKEN)
    assert "scope `read`" in error["hint"]


def test_too_small_a_scope_says_which_is_needed(guarded):
    answer = guarded.ask("POST", "/api/v1/flags", guarded.secrets[Scope.READ])
    assert answer.status_code == 403
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="kvflags", error="insufficient_scope", scope="operate"'
    assert answer.json()["error"]["message"] == "the token the-read has the scope read; this needs operate"


def test_otlp_answers_with_a_status_in_its_own_encoding(guarded):
    headers = {"Content-Type": "application/x-protobuf"}
    answer = guarded.ask("POST", "/v1/traces", headers=headers)
    assert (answer.status_code, answer.headers["Content-Type"]) == (401, "application/x-protobuf")
    status = Status.FromString(answer.content)
    assert (status.code, status.message.startswith(_NO_TOKEN)) == (16, True)
    answer = guarded.ask("POST", "/v1/traces", guarded.secrets[Scope.READ], json={})
    assert (answer.status_code, answer.json()["code"]) == (403, 7)
    assert guarded.ask("POST", "/v1/traces", guarded.secrets[Scope.INGEST], json={}).status_code == 200


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Bearer nonsense", "Basic {}", "{}", "Bearer {}x", "Bearer \xff"]
)
def test_what_is_no_token_of_ours(guarded, header):
    sent = header.format(guarded.secrets[Scope.ADMIN]).encode("latin-1")
    answer = guarded.ask("GET", "/api/v1/flags", headers={"Authorization": sent})
    assert (answer.status_code, "invalid_token" in answer.headers["WWW-Authenticate"]) == (401, True)
    assert guarded.secrets[Scope.ADMIN] not in answer.text


def test_the_scheme_is_not_case_sensitive(guarded):
    headers = {"Authorization": f"bearer {guarded.secrets[Scope.READ]}"}
    assert guarded.ask("GET", "/api/v1/flags", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/api/v1/flags", "/v1/traces", "/api/v1/engines/register"])
def test_nothing_of_the_body_is_read(guarded, path):
    sent = []

    async def receive():
        raise AssertionError("the body was asked for")

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b"", "server": ("x", 1)}
    asyncio.run(guarded.app(scope, receive, send))
    assert sent[0]["status"] == 401


def test_an_author_not_given_is_the_tokens_name(guarded):
    flag = {"key": "clb", "feature": "cross_layer_blocks", "reason": "try it"}
    assert guarded.ask("POST", "/api/v1/flags", guarded.secrets[Scope.OPERATE], json=flag).status_code == 201
    with guarded.db.read() as conn:
        assert conn.exec_driver_sql("SELECT author FROM flag_revisions").scalars().all() == ["the-operate"]
    aim = {"percent": 5, "reason": "go", "author": "bob"}
    guarded.ask("PUT", "/api/v1/flags/clb/target", guarded.secrets[Scope.OPERATE], json=aim)
    with guarded.db.read() as conn:
        authors = conn.exec_driver_sql("SELECT author FROM flag_revisions ORDER BY revision").scalars().all()
    assert authors == ["the-operate", "bob"]


def test_without_token_and_author_a_change_is_refused(unguarded):
    flag = {"key": "clb", "feature": "cross_layer_blocks", "reason": "x"}
    answer = unguarded.post("/api/v1/flags", json=flag)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid")
    assert "author" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:4318", 200), ("localhost", 200), ("[::1]:4318", 200), ("evil.example:4318", 403), ("10.0.0.1", 403)],
)
def test_without_a_token_a_page_from_elsewhere_cannot_ask_by_a_name_of_its_own(unguarded, host, status):
    answer = unguarded.get("/api/v1/flags", headers={"Host": host})
    assert answer.status_code == status
    assert json.loads(answer.content).keys() == ({"items", "next"} if status == 200 else {"error"})
