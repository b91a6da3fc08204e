# SPDX-License-Identifier: Apache-2.0
"""A real database of each kind for every test of the collector, and a whole rollout on one, for what reads it."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, TypeVar

import pytest
from databases import Databases, OnPostgreSQL, OnSQLite, opened
from needed import absent
from postgres_server import Server, programs

from kvflags_collector.rollout import flags, ledger
from kvflags_collector.rollout.leases import Timing
from kvflags_collector.store.database import Database
from kvflags_collector.store.spans import insert_spans, mark_minutes
from kvflags_collector.store.telemetry_tables import spans

T = TypeVar("T")

_SECOND = 1_000_000
_FACTS = {
    "vllm": "0.32.0",
    "nixl": "1.5.1",
    "model_class": "gqa",
    "kv_heads_per_rank": 4,
    "connector": "NixlConnector",
    "isolation": "recreate",
    "backend": "FLASH_ATTN",
    "block_size": 16,
}


class Scene:
    """Deployments by name. `now` is in microseconds. Everything goes through the ledger and the writer's statements."""

    def __init__(self, db: Database, key: str = "cross-layer-blocks") -> None:
        self.db, self.key = db, key
        self.now = 1_798_891_200 * _SECOND
        self._numbers = itertools.count(1)
        with db.write() as conn:
            flags.create(
                conn,
                key=self.key,
                feature="cross_layer_blocks",
                baseline_s=0,
                quiet_s=0,
                author="ann",
                reason="try it",
                now=self.now,
            )

    def aim(self, percent: float | None = None, count: int | None = None) -> None:
        with self.db.write() as conn:
            aim = flags.target(percent, count)
            flags.set_target(conn, self.key, aim, author="ann", reason="go", now=self.now)

    def passes(self, seconds: float) -> None:
        self.now += round(seconds * _SECOND)

    def starts(self, deployment: str, generation: str, **more: Any) -> dict[str, Any]:
        """A prefill and a decode engine register and heartbeat; what the generation was told."""
        told = [self.engine(deployment, generation, role, **more) for role in ("prefill", "decode")]
        assert told[0]["variant"] == told[1]["variant"]
        return told[0]

    def engine(self, deployment: str, generation: str, role: str, **more: Any) -> dict[str, Any]:
        """One engine; `layout` and `problems` as it heartbeats them, the rest as it registers."""
        name = f"{deployment}-{generation}-{role}"
        if len(name) > 64:
            # Ids of registrations are as long as the API lets them be; PostgreSQL would refuse more.
            name = hashlib.sha256(name.encode()).hexdigest()
        beat = {key: more.pop(key) for key in ("layout", "problems", "dropped", "ranks") if key in more}
        body = {"registration_id": name, "deployment": deployment, "generation": generation, "role": role}
        body |= {"features": ["cross_layer_blocks"], "facts": _FACTS | more.pop("facts", {}), **more}
        with self.db.write() as conn:
            decision: dict[str, Any] = ledger.register(conn, body, self.now, Timing())["decisions"][0]
        whole = decision["variant"] == "on"
        wanted = "BHLNC" if whole else "LBHNC"
        layout = {
            "requested": wanted,
            "resolved": wanted,
            "regions": 1 if whole else 8,
            "layers": 8,
            "effective": whole,
        }
        body = {"engine_id": name, "seq": 1, "layout": layout, "exercised": {"ok": 1, "errors": 0}} | beat
        with self.db.write() as conn:
            ledger.heartbeat(conn, name, body, self.now, Timing())
        return decision

    def transfers(self, deployment: str, generation: str, number: int, **given: Any) -> None:
        """Spans of `number` transfers by the decode engine, begun now; `given` are columns."""
        rows = [self._span(deployment, generation, given) for _ in range(number)]
        minute = self.now // 60_000_000 * 60_000_000
        with self.db.write() as conn:
            insert_spans(conn, rows)
            mark_minutes(conn, {(minute, deployment)}, [])

    def _span(self, deployment: str, generation: str, given: dict[str, Any]) -> tuple[Any, ...]:
        number = next(self._numbers)
        values = {
            "start_ns": self.now * 1000 + number,
            "trace_id": number.to_bytes(16, "big"),
            "span_id": number.to_bytes(8, "big"),
            "end_ns": self.now * 1000 + number + 2_000_000,
            "name": "kv.transfer",
            "kind": 3,
            "status": 0,
            "arm": "",
            "deployment": deployment,
            "generation": generation,
            "epoch": 1,
            "engine_id": f"{deployment}-{generation}-decode",
            "mode": "pull",
            "rank": 0,
            "world_size": 1,
            "bytes": 1 << 20,
            "descriptors": 8,
            "blocks": 8,
            "post_ns": 100_000,
            "backend": "FLASH_ATTN",
            "resource": b"r",
            "received_us": self.now,
        } | given
        return tuple(values.get(column.name) for column in spans.columns)


@pytest.fixture(scope="session")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Databases:
    return OnSQLite(tmp_path_factory.mktemp("databases"))


@pytest.fixture(scope="session")
def on_postgresql() -> Iterator[Databases]:
    if programs() is None:
        absent("PostgreSQL", "postgresql")
    server = Server()
    yield OnPostgreSQL(server)
    server.stop()


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def databases(request: pytest.FixtureRequest) -> Databases:
    """Every test that asks for it, or for `db`, runs on both."""
    made: Databases = request.getfixturevalue(f"on_{request.param}")
    return made


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    """A database at our revision."""
    made = databases.new()
    yield made
    databases.drop(made)


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    db = opened(url)
    yield db
    db.close()


@pytest.fixture(scope="session")
def scene_on() -> type[Scene]:
    """scene_on(db, key): for tests that make databases as they go."""
    return Scene


@pytest.fixture
def scene(db: Database) -> Scene:
    return Scene(db)


@pytest.fixture(scope="session")
def originals() -> dict[Any, tuple[str, Any]]:
    """Of `copied`: what was made, and where."""
    return {}


@pytest.fixture
def copied(
    databases: Databases, originals: dict[Any, tuple[str, Any]]
) -> Iterator[Callable[[Callable[[Scene], T]], T]]:
    """copied(make): what `make(scene)` gave, which has that `scene`, on a database of this test's own.

    It is made once for all tests that ask for the same: filling a database takes seconds, and copying it an instant.
    """
    taken: list[tuple[str, Database]] = []

    def take(make: Callable[[Scene], T]) -> T:
        key = (databases.kind, make)
        if key not in originals:
            url = databases.new()
            db = opened(url)
            originals[key] = (url, make(Scene(db)))
            db.close()
        url, original = originals[key]
        mine = databases.copy(url)
        taken.append((mine, opened(mine)))
        made, scene = copy(original), copy(original.scene)
        made.scene, scene.db = scene, taken[-1][1]
        return made

    yield take
    for url, db in taken:
        db.close()
        databases.drop(url)


@pytest.fixture
def compared(scene: Scene) -> Scene:
    """One deployment treated, one control, second generation of each, with transfers; named by arm."""
    for name in ("c/ns/a", "c/ns/b"):
        scene.starts(name, "r1")
        scene.transfers(name, "r1", 2)
    scene.passes(60)
    scene.aim(count=1)
    for name in ("c/ns/a", "c/ns/b"):
        told = scene.starts(name, "r2")
        treated = told["arm"] == "treatment"
        scene.transfers(name, "r2", 10, arm=told["arm"], descriptors=1 if treated else 8)
    scene.passes(1)
    return scene
