# SPDX-License-Identifier: Apache-2.0
"""A fleet on a real SQLite file, with a clock that the test moves. Nothing here stands in for code of ours."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from sqlalchemy import select

from kvflags.flags import Flag, Target
from kvflags_collector.rollout import flags, ledger
from kvflags_collector.rollout.leases import Timing
from kvflags_collector.rollout.tick import tick
from kvflags_collector.store import control_tables as tables
from kvflags_collector.store.database import Database
from kvflags_collector.times import SECOND

KEY = "cross-layer-blocks"
LAYOUTS = {"on": "BHLNC", "off": "LBHNC"}
FACTS: dict[str, Any] = {
    "vllm": "0.32.0",
    "nixl": "1.5.1",
    "model_class": "gqa",
    "kv_heads_per_rank": 4,
    "connector": "NixlConnector",
    "isolation": "recreate",
}
CONTROL = [table for table in tables.flags.metadata.sorted_tables if table.name in set(tables.__all__)]


class Fleet:
    """Engines by name, told what the ledger tells them. `now` is in microseconds; `passes` moves it."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.now = 1_800_000_000 * SECOND
        self.timing = Timing()
        self.told: dict[str, dict[str, Any]] = {}
        self._seq = itertools.count(1)

    def create(self, **fields: Any) -> Flag:
        given = {"key": KEY, "feature": "cross_layer_blocks", "baseline_s": 0, "quiet_s": 0}
        with self.db.write() as conn:
            return flags.create(conn, **{**given, "author": "ann", "reason": "try it", **fields}, now=self.now)

    def aim(self, percent: float | None = None, count: int | None = None, **more: Any) -> Flag:
        aim = None if percent is None and count is None else flags.target(percent, count)
        return self.change("set_target", aim, **more)

    def change(self, action: str, *args: Target | None, **more: Any) -> Flag:
        with self.db.write() as conn:
            given = {"author": "ann", "reason": "because", "now": self.now, **more}
            return getattr(flags, action)(conn, given.pop("key", KEY), *args, **given)

    def register(
        self, name: str, deployment: str | None = "c/ns/a", generation: str = "g1", role: str = "prefill", **more: Any
    ) -> dict[str, Any]:
        """The decision told, {} for none."""
        facts = FACTS | more.pop("facts", {})
        body = {"registration_id": name, "deployment": deployment, "generation": generation, "role": role}
        body |= {"features": ["cross_layer_blocks"], "kvflags": "1.0", "facts": facts, **more}
        with self.db.write() as conn:
            answer = ledger.register(conn, body, self.now, self.timing)
        decision = answer["decisions"][0] if answer["decisions"] else {}
        self.told.setdefault(name, decision)
        return decision

    def beat(self, name: str, engine: str = "", runs: str | None = None, **more: Any) -> dict[str, Any]:
        """A heartbeat of an engine that runs what it was told first, or `runs`."""
        variant = runs or self.told[name].get("variant", "off")
        facts = {"backend": "FLASH_ATTN", "block_size": 16} | more.pop("facts", {})
        layout = {"requested": LAYOUTS[variant], "resolved": LAYOUTS[variant], "regions": 1, "layers": 8}
        body = {"engine_id": engine or f"engine-{name}", "seq": next(self._seq), "facts": facts, "layout": layout}
        with self.db.write() as conn:
            return ledger.heartbeat(
                conn, name, body | {"exercised": {"ok": 1, "errors": 0}} | more, self.now, self.timing
            )

    def pair(self, deployment: str = "c/ns/a", generation: str = "g1", **more: Any) -> list[dict[str, Any]]:
        """A prefill and a decode engine that run and moved something: what observation wants."""
        names = [f"{deployment}-{generation}-{role}" for role in ("prefill", "decode")]
        told = [self.register(n, deployment, generation, n.rsplit("-", 1)[1], **dict(more)) for n in names]
        for name in names:
            self.beat(name)
        return told

    def passes(self, seconds: float, beating: tuple[str, ...] = ()) -> None:
        """Time in which the collector lives and only these engines do."""
        end = self.now + round(seconds * SECOND)
        while self.now < end:
            # Below one heartbeat: a longer step would be an outage of the collector.
            self.now = min(end, self.now + 25 * SECOND)
            for name in beating:
                self.beat(name)
            self.tick()

    def tick(self) -> None:
        with self.db.write() as conn:
            tick(conn, self.now, self.timing)

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """These columns of a whole table, in the order of its key."""
        table = tables.flags.metadata.tables[name]
        wanted = [table.c[column] for column in columns] or list(table.c)
        with self.db.read() as conn:
            return [tuple(row) for row in conn.execute(select(*wanted).order_by(*table.primary_key))]

    def everything(self) -> dict[str, list[tuple[Any, ...]]]:
        """The whole control plane, to compare before and after."""
        return {table.name: self.rows(table.name) for table in CONTROL}

    def ask(self, question: Any, *args: Any, **more: Any) -> Any:
        """A function of `rollout` that reads."""
        with self.db.read() as conn:
            return question(conn, *args, **more)


@pytest.fixture
def fleet(db: Database) -> Fleet:
    return Fleet(db)
