# SPDX-License-Identifier: Apache-2.0
"""A collector that asks for tokens, with one token of each scope."""

from __future__ import annotations

from starlette.testclient import TestClient

from kvflags_collector.access import tokens
from kvflags_collector.access.scopes import Scope
from kvflags_collector.app import create_app
from kvflags_collector.settings import Settings
from kvflags_collector.store.database import Database


class Guarded:
    """`secrets`: a token by scope. `now` is in microseconds."""

    def __init__(self, db: Database) -> None:
        self.db, self.now = db, 1_800_000_000 * 1_000_000
        self.app = create_app(Settings(db=db.url, require_tokens=True), db, clock=lambda: self.now)
        self.http = TestClient(self.app, "http://collector.example", raise_server_exceptions=False)
        self.secrets = {scope: self.token(f"the-{scope}", scope) for scope in Scope}

    def token(self, name: str, scope: Scope, expires_s: float | None = None) -> str:
        with self.db.write() as conn:
            made = tokens.create(conn, name=name, scope=scope, author="ann", now=self.now, expires_s=expires_s)
        return made["token"]

    def ask(self, method: str, path: str, token: str | None = None, **more):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.http.request(method, path, headers=headers | more.pop("headers", {}), **more)
