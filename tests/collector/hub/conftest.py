# SPDX-License-Identifier: Apache-2.0
"""A hub, asked over HTTP, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bundles import bundle, key_of, revocation, signed
from starlette.testclient import TestClient

from kvflags_collector.app import create_app
from kvflags_collector.settings import Settings
from kvflags_collector.store.database import Database

FEATURE = "cross_layer_blocks"


class Hub:
    """`now` is in microseconds: 2027-01-15 08:00 UTC at first."""

    def __init__(self, db: Database) -> None:
        self.now = 1_800_000_000 * 1_000_000
        app = create_app(Settings(db=db.url, hub=True), db, clock=lambda: self.now)
        self.http = TestClient(app, "http://127.0.0.1", raise_server_exceptions=False)

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        response = self.http.request(method, f"/api/v1{path}", **({} if body is None else {"json": body}))
        return response.status_code, response.json()

    def send(self, organisation: str, fleet: str | None = None, effect: float = -0.25, **more: Any) -> tuple[int, Any]:
        """A fleet of its own name where none is given."""
        self.now += 1_000_000
        document = bundle(fleet or organisation, effect, **more)
        return self("POST", "/hub/bundles", signed(key_of(organisation), document))

    def admit(self, *organisations: str) -> None:
        """They must have sent something."""
        keys = {signed(key_of(name), {})["key"]: name for name in organisations}
        for one in self("GET", "/hub/organisations")[1]["items"]:
            if name := keys.get(one["key"]):
                path = f"/hub/organisations/{one['organisation']}/admit"
                assert self("POST", path, {"author": "ann", "name": name})[0] == 200

    def report(self, as_of: str = "") -> dict[str, Any]:
        status, found = self("GET", f"/hub/reports/{FEATURE}" + (f"?as_of={as_of}" if as_of else ""))
        assert status == 200, found
        return found

    def revoke(self, organisation: str, receipt: str | None) -> tuple[int, Any]:
        self.now += 1_000_000
        return self("POST", "/hub/revocations", revocation(key_of(organisation), receipt))

    def bytes(self) -> bytes:
        return self.http.get(f"/api/v1/hub/reports/{FEATURE}").content


@pytest.fixture
def hub(db: Database) -> Iterator[Hub]:
    made = Hub(db)
    with made.http:
        yield made
