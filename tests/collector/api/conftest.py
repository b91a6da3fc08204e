# SPDX-License-Identifier: Apache-2.0
"""The real application over a real SQLite file, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import select
from starlette.testclient import TestClient

from kvflags_collector.app import create_app
from kvflags_collector.settings import Settings
from kvflags_collector.store.database import Database
from kvflags_collector.store.metadata import metadata

FACTS: dict[str, Any] = {
    "vllm": "0.32.0",
    "model_class": "gqa",
    "kv_heads_per_rank": 4,
    "connector": "NixlConnector",
    "isolation": "recreate",
}


class Api:
    """JSON in, (status, JSON) out. `now` is in microseconds."""

    def __init__(self, db: Database) -> None:
        self.now = 1_800_000_000 * 1_000_000
        self.db = db
        self.app = self.another()
        self.http = TestClient(self.app, "http://127.0.0.1", raise_server_exceptions=False)

    def another(self, **more: Any) -> FastAPI:
        """A second application on the same database, to serve on a socket: one runs once."""
        return create_app(Settings(db=self.db.url, **more), self.db, clock=lambda: self.now)

    def __call__(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        response = self.http.request(method, path, **({} if body is None else {"json": body}), **more)
        return response.status_code, response.json()

    def create(self, **more: Any) -> tuple[int, Any]:
        body = {"key": "clb", "feature": "cross_layer_blocks", "baseline_s": 0, "quiet_s": 0}
        return self("POST", "/api/v1/flags", body | {"author": "ann", "reason": "try it"} | more)

    def register(self, name: str = "r1", **more: Any) -> tuple[int, Any]:
        body = {"registration_id": name, "deployment": "c/ns/a", "generation": "g1", "role": "prefill"}
        body |= {"features": ["cross_layer_blocks"], "kvflags": "1.0", "facts": FACTS}
        return self("POST", "/api/v1/engines/register", body | more)

    def beat(self, name: str = "r1", **more: Any) -> tuple[int, Any]:
        body = {"seq": 1, "engine_id": f"engine-{name}", "facts": {"backend": "FLASH_ATTN", "block_size": 16}}
        body |= {"layout": {"resolved": "LBHNC"}, "exercised": {"ok": 1, "errors": 0}}
        return self("POST", f"/api/v1/engines/{name}/heartbeat", body | more)

    def pair(self, generation: str = "g1") -> list[dict[str, Any]]:
        told = []
        for role in ("prefill", "decode"):
            name = f"{generation}-{role}"
            told.append(self.register(name, generation=generation, role=role)[1]["decisions"][0])
            self.beat(name)
        return told

    def aim(self, **body: Any) -> tuple[int, Any]:
        return self("PUT", "/api/v1/flags/clb/target", {"author": "ann", "reason": "go"} | body)

    def dump(self) -> list[str]:
        """Every row of every table, to compare before and after; except for what the threads write by themselves."""
        clockwork = {"collectors", "leases"}
        tables = [table for table in metadata.sorted_tables if table.name not in clockwork]
        with self.db.read() as conn:
            return [f"{table.name}: {row}" for table in tables for row in sorted(map(str, conn.execute(select(table))))]


@pytest.fixture
def api(db: Database) -> Iterator[Api]:
    api = Api(db)
    with api.http:
        yield api
