# SPDX-License-Identifier: Apache-2.0
"""The one property that everything rests on: prefill and decode agree, whatever operators, engines and outages do.

KVFLAGS_SOAK_CASES sets how many histories are drawn (`make soak`: 300).
"""

from __future__ import annotations

import itertools
import os
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass

from databases import Databases, opened
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select

from kvflags.decision import signed as tokens
from kvflags.errors import NotFound
from kvflags_collector.rollout import alarms, decide, ledger
from kvflags_collector.rollout.audit import Actor, replay
from kvflags_collector.rollout.declared import Declaration
from kvflags_collector.rollout.flags import abort, create, kill_switch, set_target, start, target
from kvflags_collector.rollout.leases import Timing
from kvflags_collector.rollout.pins import open_pins
from kvflags_collector.rollout.steer import declare, opt, reopen
from kvflags_collector.rollout.tick import tick
from kvflags_collector.store.control_tables import flags, opts
from kvflags_collector.store.database import Database
from kvflags_collector.times import SECOND

KEY = "cross-layer-blocks"
CHANGE = {"author": "ann", "reason": "because"}
ANN = Actor(**CHANGE)
LAYOUTS = {"on": "BHLNC", "off": "LBHNC"}
PLACES = [("a", "g2"), ("a", "g1"), ("b", "g2")]
ROLES = ["prefill", "decode"]
# Those cut off start without an answer: with the decision that was handed out for their place, or without one, off.
KINDS = ["plain"] * 6 + ["forced on", "forced off", "unsafe", "cut off", "cut off", "handed out"]
HISTORIES = max(12, int(os.environ.get("KVFLAGS_SOAK_CASES", "12")))
FACTS = {"vllm": "0.32.0", "model_class": "gqa", "kv_heads_per_rank": 4, "connector": "NixlConnector"}


@dataclass
class Engine:
    """A process: it runs one variant of one epoch until it dies. `reaches`: heartbeats get through. `special`: free to
    disagree, since it was forced, refused for safety, started cut off with nothing in hand, or was once cut off beyond
    its lease. `token`: the decision that was handed out to it, by which it agrees also while it is cut off."""

    name: str
    place: tuple[str, str]
    role: str
    variant: str
    reaches: bool = True
    special: bool = False
    epoch: int = 0
    token: str | None = None

    @property
    def bound(self) -> bool:
        return not self.special and (self.reaches or self.token is not None)


class Agreement(RuleBasedStateMachine):
    """Two deployments with two generations each; engines come, go, lose contact and return.

    On PostgreSQL two collectors take turns at everything.
    """

    engines = Bundle("engines")

    def __init__(self, databases: Databases) -> None:
        super().__init__()
        self.databases, self.url = databases, databases.new()
        self.open = ExitStack()
        several = 1 if databases.kind == "sqlite" else 2
        self.turns = itertools.cycle([self.open.enter_context(closing(opened(self.url))) for _ in range(several)])
        self.tokens: dict[tuple[str, str], str] = {}
        self.handed: dict[tuple[str, str], tokens.Claims] = {}
        self.now, self.timing = 1_800_000_000 * SECOND, Timing()
        self.living: list[Engine] = []
        self.count = 0

    @property
    def db(self) -> Database:
        return next(self.turns)

    def teardown(self) -> None:
        self.open.close()
        self.databases.drop(self.url)

    @initialize(target=engines)
    def begin(self) -> MultipleResults[Engine]:
        with self.db.write() as conn:
            given = {"key": KEY, "feature": "cross_layer_blocks", "baseline_s": 0, "quiet_s": 0}
            create(conn, **given, **CHANGE, now=self.now)
        for deployment in ("a", "b"):
            for role in ROLES:
                self.start(deployment, "g1", role)
        self.beat_all()
        self.aim(100, None)
        return multiple(*(self.start("a", "g2", role) for role in ROLES))

    # Few rules with many cases each: Hypothesis leaves whole rules out of most runs, and a run without joiners or
    # without the kill switch shows little.
    @rule(target=engines, place=st.sampled_from(PLACES), role=st.sampled_from(ROLES), kind=st.sampled_from(KINDS))
    def join(self, place: tuple[str, str], role: str, kind: str) -> Engine:
        return self.start(*place, role, kind)

    @rule(engine=engines, what=st.sampled_from(["die", "lose contact", "regain contact"]))
    def befall(self, engine: Engine, what: str) -> None:
        if engine not in self.living:
            return
        if what == "die":
            self.living.remove(engine)
        else:
            engine.reaches = what == "regain contact"
        if engine.reaches and engine in self.living:
            self.beat(engine)

    @rule(action=st.sampled_from(["kill", "revive", "abort", "start", 0, 40, 100, "0", "1"]))
    def operate(self, action: int | str) -> None:
        with self.db.write() as conn:
            if action in {"kill", "revive"}:
                kill_switch(conn, KEY, on=action == "kill", **CHANGE, now=self.now)
            elif action == "abort":
                abort(conn, KEY, **CHANGE, now=self.now)
            else:
                start(conn, KEY, **CHANGE, now=self.now)
        if action not in {"kill", "revive", "abort", "start"}:
            self.aim(*((None, int(action)) if isinstance(action, str) else (action, None)))

    @rule(what=st.sampled_from(["out", "in", None, "reopen", "declare"]), place=st.sampled_from(PLACES))
    def steer(self, what: str | None, place: tuple[str, str]) -> None:
        with self.db.write() as conn:
            if what == "declare":
                declare(conn, place[0], Declaration(isolation="recreate"), actor=ANN, now=self.now)
            elif what == "reopen":
                with suppress(NotFound):
                    reopen(conn, KEY, *place, actor=ANN, now=self.now)
                    # Who reopens a generation takes back what was handed out for it.
                    self.tokens.pop(place, None)
            else:
                opt(conn, KEY, place[0], what, actor=ANN, now=self.now)
        self.beat_all()

    @rule(place=st.sampled_from(PLACES))
    def hand_out(self, place: tuple[str, str]) -> None:
        with self.db.write() as conn:
            made = decide.decide(conn, KEY, *place, self.now)
        at = self.now / SECOND
        self.handed[place] = tokens.verify(made["key"], made["signed"], at, deployment=place[0], generation=place[1])
        self.tokens[place] = made["signed"]

    @rule(seconds=st.sampled_from([20, 100, 200]))
    def time_passes(self, seconds: int) -> None:
        for _ in range(seconds // 20):
            self.now += 20 * SECOND
            self.beat_all()
            self.tick()

    @rule(seconds=st.sampled_from([40, 89, 400, 4000]))
    def the_collector_is_away(self, seconds: int) -> None:
        before = self.in_force()
        self.now += seconds * SECOND
        self.tick()
        self.beat_all()
        assert self.in_force() == before, "an outage decides nothing"

    def in_force(self) -> list[tuple[str, str, int]]:
        with self.db.read() as conn:
            return [(pin.deployment, pin.generation, pin.epoch) for pin in open_pins(conn)]

    @precondition(lambda self: self.living)
    @invariant()
    def plain_engines_of_an_epoch_agree(self) -> None:
        for epoch in {(engine.place, engine.epoch) for engine in self.living}:
            mine = [e for e in self.living if (e.place, e.epoch) == epoch and e.bound]
            assert len({engine.variant for engine in mine}) <= 1, (epoch, mine)

    @invariant()
    def the_log_replays_to_what_stands(self) -> None:
        with self.db.read() as conn:
            replayed = replay(conn)
            opted = conn.execute(select(opts.c.flag, opts.c.deployment, opts.c.opted)).all()
            assert replayed["flags"] == dict(conn.execute(select(flags.c.key, flags.c.document)).all())
        assert replayed["opts"] == {(row.flag, row.deployment): row.opted for row in opted}

    @precondition(lambda self: self.living)
    @invariant()
    def what_disagrees_is_named(self) -> None:
        with self.db.read() as conn:
            named = {(a["deployment"], a["generation"]) for a in alarms.listing(conn) if a["ended_at"] is None}
        for place in {engine.place for engine in self.living}:
            heard = {engine.variant for engine in self.living if engine.place == place and engine.reaches}
            assert len(heard) < 2 or place in named

    def start(self, deployment: str, generation: str, role: str, kind: str = "plain") -> Engine:
        self.count += 1
        engine = Engine(f"r{self.count}", (deployment, generation), role, "off", special=kind != "plain")
        extra: dict[str, object] = {}
        if kind.startswith("forced"):
            extra["local"] = {"source": "KVFLAGS_FORCE", "variant": kind.split()[1]}
        engine.token = self.tokens.get(engine.place) if kind in {"cut off", "handed out"} else None
        engine.special = kind != "plain" and engine.token is None
        if kind == "cut off":
            self.alone(engine)
            return engine
        told = self.register(engine, model_class="mla_sparse" if kind == "unsafe" else "gqa", **extra)
        engine.variant, engine.epoch = told["variant"], int(told["epoch"])
        self.living.append(engine)
        self.beat(engine)
        return engine

    def alone(self, engine: Engine) -> None:
        """It starts without an answer."""
        engine.reaches = False
        if engine.token is not None:
            claims = self.handed[engine.place]
            engine.variant, engine.epoch = claims.variant, claims.epoch
        self.living.append(engine)

    def register(self, engine: Engine, model_class: str = "gqa", **extra: object) -> dict[str, str]:
        facts = FACTS | {"isolation": "recreate", "model_class": model_class}
        extra["presented"] = engine.token
        body = {"registration_id": engine.name, "deployment": engine.place[0], "generation": engine.place[1]}
        with self.db.write() as conn:
            answer = ledger.register(
                conn,
                body | {"role": engine.role, "features": ["cross_layer_blocks"], "facts": facts, **extra},
                self.now,
                self.timing,
            )
        told: dict[str, str] = answer["decisions"][0]
        return told

    def beat(self, engine: Engine) -> None:
        body = {
            "engine_id": engine.name,
            "facts": {"backend": "FLASH_ATTN", "block_size": 16},
            "layout": {"resolved": LAYOUTS[engine.variant]},
            "exercised": {"ok": 1, "errors": 0},
        }
        try:
            with self.db.write() as conn:
                ledger.heartbeat(conn, engine.name, body, self.now, self.timing)
        except NotFound:
            # Away for longer than its lease, with all its peers, or never heard: it is one that runs already.
            told = self.register(engine, running=engine.variant)
            engine.special = engine.token is None or int(told["epoch"]) != engine.epoch
            self.beat(engine)

    def beat_all(self) -> None:
        for engine in self.living:
            if engine.reaches:
                self.beat(engine)

    def aim(self, percent: float | None, count: int | None) -> None:
        with self.db.write() as conn:
            start(conn, KEY, **CHANGE, now=self.now)
            set_target(conn, KEY, target(percent, count), **CHANGE, now=self.now)

    def tick(self) -> None:
        with self.db.write() as conn:
            tick(conn, self.now, self.timing)


def test_agreement(databases: Databases) -> None:
    run_state_machine_as_test(
        lambda: Agreement(databases),
        settings=settings(
            max_examples=HISTORIES,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # Shrinking would take minutes, and 25 steps are short enough to read.
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
        ),
    )
