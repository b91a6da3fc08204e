# SPDX-License-Identifier: Apache-2.0
"""Tokens: made once, stored as a hash, ending by time and by hand, several under one name."""

import hashlib

import pytest

from kvflags.errors import NotFound, UsageError
from kvflags_collector.access import tokens
from kvflags_collector.access.scopes import Scope

_NEW = {"name": "engines", "scope": "ingest", "author": "ann"}


def _stored(db):
    with db.read() as conn:
        return conn.exec_driver_sql("SELECT * FROM tokens").mappings().all()


def test_it_is_random_and_only_its_hash_is_stored(db):
    with db.write() as conn:
        one, other = (tokens.create(conn, name="a", scope=Scope.READ, author="ann", now=1) for _ in range(2))
    assert one["token"] != other["token"]
    # 256 bits in base64 are 43 characters.
    assert len(one["token"]) == len("kvf_") + 43
    row = next(row for row in _stored(db) if row["id"] == one["id"])
    assert bytes(row["hash"]) == hashlib.sha256(one["token"].encode()).digest()
    assert one["token"] not in repr(_stored(db))


@pytest.mark.parametrize("expires_s", [0, -1, float("nan"), float("inf"), 11 * 366 * 86_400])
def test_an_expiry_out_of_range(db, expires_s):
    with db.write() as conn, pytest.raises(UsageError):
        tokens.create(conn, name="a", scope=Scope.READ, author="ann", now=1, expires_s=expires_s)
    assert _stored(db) == []


def test_revoking_one_that_is_none(db):
    with db.write() as conn, pytest.raises(NotFound, match="no token nonsense"):
        tokens.revoke(conn, "nonsense", author="ann", now=1)


def test_made_listed_and_revoked_over_the_api(guarded):
    admin = guarded.secrets[Scope.ADMIN]
    made = guarded.ask("POST", "/api/v1/tokens", admin, json=_NEW)
    assert made.status_code == 201
    secret, known = made.json()["token"], {k: v for k, v in made.json().items() if k != "token"}
    assert guarded.ask("POST", "/v1/traces", secret, json={}).status_code == 200
    listed = guarded.ask("GET", "/api/v1/tokens", admin)
    assert known in listed.json()["items"]
    assert "token" not in listed.json()["items"][0]
    assert secret not in listed.text
    guarded.now += 1_000_000
    ended = guarded.ask("POST", f"/api/v1/tokens/{known['id']}/revoke", admin, json={})
    assert (ended.json()["state"], ended.json()["revoked_by"]) == ("revoked", "the-admin")
    assert guarded.ask("POST", "/v1/traces", secret, json={}).status_code == 401
    # Again: nothing changes.
    guarded.now += 1_000_000
    assert guarded.ask("POST", f"/api/v1/tokens/{known['id']}/revoke", admin, json={}).json() == ended.json()


def test_one_follows_another_under_the_same_name(guarded):
    admin = guarded.secrets[Scope.ADMIN]
    first, second = (guarded.ask("POST", "/api/v1/tokens", admin, json=_NEW).json() for _ in range(2))
    assert [guarded.ask("POST", "/v1/logs", one["token"], json={}).status_code for one in (first, second)] == [200, 200]
    guarded.ask("POST", f"/api/v1/tokens/{first['id']}/revoke", admin, json={})
    assert [guarded.ask("POST", "/v1/logs", one["token"], json={}).status_code for one in (first, second)] == [401, 200]


def test_it_expires_to_the_moment(guarded):
    secret = guarded.ask("POST", "/api/v1/tokens", guarded.secrets[Scope.ADMIN], json=_NEW | {"expires_s": 60}).json()
    guarded.now += 59_999_999
    assert guarded.ask("POST", "/v1/traces", secret["token"], json={}).status_code == 200
    guarded.now += 1
    assert guarded.ask("POST", "/v1/traces", secret["token"], json={}).status_code == 401
    listed = guarded.ask("GET", "/api/v1/tokens", guarded.secrets[Scope.ADMIN]).json()["items"]
    assert next(one["state"] for one in listed if one["id"] == secret["id"]) == "expired"


@pytest.mark.parametrize(
    "wrong", [{"scope": "root"}, {"name": ""}, {"name": "a\nb"}, {"expires_s": -1}, {"scope": None}]
)
def test_a_token_that_cannot_be_made(guarded, wrong):
    before = _stored(guarded.db)
    answer = guarded.ask("POST", "/api/v1/tokens", guarded.secrets[Scope.ADMIN], json=_NEW | wrong)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid")
    assert _stored(guarded.db) == before
