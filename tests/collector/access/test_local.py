# SPDX-License-Identifier: Apache-2.0
"""The embedded default: on loopback engines and readers need no token, changes need the admin's that was left."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from kvflags.local_token import read
from kvflags_collector.access import local, tokens
from kvflags_collector.access.scopes import Scope
from kvflags_collector.app import create_app
from kvflags_collector.settings import Settings
from kvflags_collector.times import now_us

FLAG = {"key": "clb", "feature": "cross_layer_blocks", "author": "ann", "reason": "try it"}


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "state" / "collector-4318.token"


@pytest.fixture
def leave(db, path):
    """leave(owner, port): as a collector that starts; the token that then lies there."""

    def again(owner: str = "ada@node1", port: int = 4318) -> str:
        local.leave(db, path, owner, port, now_us())
        return read(path).value

    return again


def _live(db) -> list[tuple[str, str]]:
    with db.read() as conn:
        return sorted((row.name, row.scope) for row in tokens.live(conn, now_us()))


def test_it_is_an_admins_and_for_its_owner_alone(db, path, leave):
    assert leave().startswith("kvf_")
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    assert _live(db) == [("ada@node1", "admin")]


def test_a_restart_keeps_it_so_that_who_signed_in_stays(db, leave):
    assert leave() == leave()
    assert len(_live(db)) == 1


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_text("x"), lambda path: path.chmod(0o644)])
def test_where_it_cannot_be_believed_any_more_another_one_takes_its_place(db, path, leave, harm):
    before = leave()
    harm(path)
    assert leave() != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert _live(db) == [("ada@node1", "admin")]


def test_one_that_was_revoked_or_is_of_another_database_is_replaced(db, path, leave):
    before = leave()
    with db.write() as conn:
        [row] = tokens.live(conn, now_us())
        tokens.revoke(conn, row.id, author="ann", now=now_us())
    assert leave() != before


def test_one_with_a_smaller_scope_is_replaced(db, path, leave):
    leave()
    with db.write() as conn:
        made = tokens.create(conn, name="reader", scope=Scope.READ, author="ann", now=now_us())
    path.write_text(made["token"])
    assert leave() != made["token"]
    assert _live(db) == [("ada@node1", "admin"), ("reader", "read")]


def test_of_collectors_that_share_a_database_each_ends_only_its_own(db, path, leave, tmp_path):
    leave()
    local.leave(db, tmp_path / "other.token", "bob@node1", 5000, now_us())
    assert _live(db) == [("ada@node1", "admin"), ("bob@node1", "admin")]


def test_where_it_cannot_be_written_none_is_made(db, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        local.leave(db, tmp_path / "file" / "collector-1.token", "ada@node1", 1, now_us())
    assert _live(db) == []


@pytest.mark.parametrize(
    ("owner", "name"), [("a b\x1b@node1", "a-b-@node1"), ("@" * 90, "local"), ("x" * 90, "x" * 64)]
)
def test_a_user_of_any_name_can_have_one(db, leave, owner, name):
    leave(owner)
    assert _live(db) == [(name, "admin")]


def test_engines_and_readers_need_none_and_changes_do(db, leave):
    secret = leave()
    app = create_app(Settings(db=db.url, local_admin="ada@node1"), db)
    with TestClient(app, "http://127.0.0.1") as http:
        assert http.post("/v1/traces", json={}).status_code == 200
        assert http.get("/api/v1/flags").status_code == 200
        assert http.post("/ofrep/v1/evaluate/flags", json={"context": {"targetingKey": "a"}}).status_code == 200
        refused = http.post("/api/v1/flags", json=FLAG)
        assert (refused.status_code, refused.json()["error"]["message"]) == (401, "a token is needed")
        assert http.get("/api/v1/tokens").status_code == 401
        sent = {"Authorization": f"Bearer {secret}"}
        assert http.post("/api/v1/flags", json=FLAG, headers=sent).status_code == 201
        assert http.get("/api/v1/tokens", headers=sent).status_code == 200


def test_a_page_is_read_by_all_and_says_where_to_sign_in_before_acting(db, leave):
    secret = leave()
    app = create_app(Settings(db=db.url, local_admin="ada@node1"), db)
    with TestClient(app, "http://127.0.0.1") as http:
        http.post("/api/v1/flags", json=FLAG, headers={"Authorization": f"Bearer {secret}"})
        read_only = http.get("/rollouts/clb").text
        assert '<a href="/login?next=/rollouts/clb">Sign in</a>' in read_only
        assert '<form class="act"' not in read_only
        http.post("/login", data={"token": secret, "next": "/rollouts/clb"})
        signed_in = http.get("/rollouts/clb").text
        assert "ada@node1" in signed_in
        assert '<form class="act"' in signed_in
        assert ">Sign in</a>" not in signed_in


def test_beyond_this_machine_nothing_is_open(db):
    assert Settings(host="0.0.0.0", insecure_bind=True, local_admin="ada@node1").tokenless == frozenset()
    assert Settings(require_tokens=True, local_admin="ada@node1").tokenless == frozenset()
    assert Settings(local_admin="ada@node1").tokenless == {Scope.INGEST, Scope.READ}
