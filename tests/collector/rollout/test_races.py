# SPDX-License-Identifier: Apache-2.0
"""Who comes at the same moment: rampers that take turns within a step, operators, engines by the dozen."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import pytest
from databases import opened
from sqlalchemy import select

from kvflags.errors import Conflict
from kvflags.flags import Step, Target
from kvflags_collector.judge.conclude import conclude
from kvflags_collector.rollout import audit, flags, ledger, ramp
from kvflags_collector.rollout.tick import Ticker
from kvflags_collector.store.control_tables import pins
from kvflags_collector.store.database import Database
from kvflags_collector.store.roles import LEASE_US
from kvflags_collector.store.rollup_tables import rollups_minute

KEY = "cross-layer-blocks"
WHO = {"author": "ann", "reason": "because"}
FACTS = {"vllm": "0.32.0", "model_class": "gqa", "kv_heads_per_rank": 4, "connector": "NixlConnector"}


@pytest.fixture
def collectors(fleet) -> Iterator[list[Database]]:
    """Three on one PostgreSQL; an SQLite file takes one, whose threads race instead."""
    if fleet.db.engine.dialect.name == "sqlite":
        yield [fleet.db] * 3
        return
    with ExitStack() as stack:
        yield [stack.enter_context(closing(opened(fleet.db.url))) for _ in range(3)]


def at_once(number: int, act: Callable[[int], Any]) -> list[Any]:
    gate = threading.Barrier(number)

    def go(index: int) -> Any:
        gate.wait()
        return act(index)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(go, range(number)))


def history(fleet, action: str) -> list[dict[str, Any]]:
    with fleet.db.read() as conn:
        return [entry for entry in audit.history(conn, KEY) if entry["action"] == action][::-1]


def test_rampers_that_take_the_role_from_each_other_enter_each_step_once(fleet, collectors):
    fleet.create()
    for name in "abcdef":
        fleet.pair(f"c/ns/{name}")
    steps = tuple(Step(Target(count=count), hold_s=0, sample=0) for count in range(1, 7))
    with fleet.db.write() as conn:
        ramp.plan(conn, KEY, steps, **WHO, now=fleet.now)
    measured(fleet)
    conclude(fleet.db, fleet.now)
    # Each look at the clock is two leases later: whoever asks finds the role free, and whoever has it loses it.
    moments = itertools.count(fleet.now, 2 * LEASE_US)
    tickers = [
        Ticker(db, fleet.timing, lambda: next(moments), holder=f"collector {number}")
        for number, db in enumerate(collectors)
    ]

    def hands() -> int:
        return max((fence for (fence,) in fleet.rows("leases", "fence")), default=0)

    def works(number: int) -> None:
        rounds = 0
        # Who is asked when is the machine's affair: on, until the role has gone round.
        while rounds < 12 or (hands() < 3 and rounds < 500):
            tickers[number].once()
            rounds += 1

    at_once(3, works)
    entered = history(fleet, "ramp_step")
    assert [entry["evidence"]["step"] for entry in entered] == list(range(6))
    assert [entry["revision"] for entry in entered] == list(range(3, 9))
    assert [arm for _, arm in fleet.rows("assignments", "deployment", "arm")] == ["treatment"] * 6
    assert hands() >= 3, "the role went from one to another"


def test_of_operators_who_edit_at_once_one_succeeds_and_the_others_are_told(fleet, collectors):
    flag = fleet.create()

    def aims(number: int) -> str:
        try:
            with collectors[number % 3].write() as conn:
                aim = flags.target(float(number + 1), None)
                flags.set_target(conn, KEY, aim, **WHO, revision=flag.revision, now=fleet.now)
        except Conflict as conflict:
            return str(conflict.code)
        return "done"

    outcome = at_once(8, aims)
    assert sorted(outcome) == ["done", *["stale_revision"] * 7]
    winner = outcome.index("done") + 1
    assert fleet.ask(flags.get, KEY).target == flags.target(float(winner), None)
    assert len(history(fleet, "set_target")) == 1


@pytest.mark.parametrize("engines", [1, 8, 64])
def test_engines_that_register_while_an_operator_changes_his_mind_are_told_the_same(fleet, collectors, engines):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    stop = threading.Event()

    def changes_his_mind() -> None:
        on = True
        while not stop.is_set():
            with collectors[0].write() as conn:
                flags.kill_switch(conn, KEY, on=on, **WHO, now=fleet.now)
            on = not on
            # A person is slower; without a pause nobody else would get the lock of SQLite.
            stop.wait(0.005)

    def registers(number: int) -> dict[str, Any]:
        generation, role = f"g{2 + number % 3}", ("prefill", "decode")[number // 3 % 2]
        body = {"registration_id": f"r{number}", "deployment": "c/ns/a", "generation": generation, "role": role}
        body |= {"features": ["cross_layer_blocks"], "facts": FACTS | {"isolation": "recreate"}}
        with collectors[number % 3].write(deployment="c/ns/a", wait_s=60) as conn:
            decision: dict[str, Any] = ledger.register(conn, body, fleet.now, fleet.timing)["decisions"][0]
        return decision | {"generation": generation}

    operator = threading.Thread(target=changes_his_mind)
    operator.start()
    try:
        told = at_once(engines, registers)
    finally:
        stop.set()
        operator.join()
    for generation in {decision["generation"] for decision in told}:
        same = {(one["variant"], one["epoch"], one["revision"]) for one in told if one["generation"] == generation}
        assert len(same) == 1
        with fleet.db.read() as conn:
            made = conn.execute(select(pins.c.variant, pins.c.epoch).where(pins.c.generation == generation)).all()
        assert [(row.variant, row.epoch) for row in made] == [next(iter(same))[:2]]


def measured(fleet) -> None:
    """A minute of the treatment arm as the roller writes it, just now."""
    values = {
        column.name: {int: 0, float: 0.0, bytes: b"", object: {}, str: ""}[column.type.python_type]
        for column in rollups_minute.columns
        if not column.nullable
    }
    values |= {"minute_us": fleet.now, "deployment": "c/ns/a", "generation": "g1", "arm": "treatment", "transfers": 1}
    with fleet.db.write() as conn:
        conn.execute(rollups_minute.insert().values(**values))
