# SPDX-License-Identifier: Apache-2.0
"""The operator guide's rollout, walked: its commands against a real collector, with engines that say what they run.

`KVFLAGS_WRITE_GUIDE=1 pytest tests/cli/test_guide.py` writes what they print into the guide.
"""

import itertools
import os
import shlex
from pathlib import Path

import httpx
import pytest
from guide import pieces

from kvflags_cli.parse import duration
from kvflags_collector.judge.conclude import conclude
from kvflags_collector.rollout.leases import Timing
from kvflags_collector.rollout.tick import tick
from kvflags_collector.store.rollups import roll

GUIDE = Path(__file__).parents[2] / "docs" / "operator-guide.md"
KEY = "cross-layer-blocks"
FLEET = tuple(f"prod/llm/{name}" for name in ("batch-eu", "code", "mail", "search", "support"))
# Nobody stated what keeps its generations apart.
SILENT = "prod/llm/support"
_MINUTE = 60 * 10**6


class Walk:
    """The fleet as the guide moves it. Generations that are not in `living` have ended and heartbeat no more."""

    def __init__(self, fleet, kvflags):
        self._fleet, self._kvflags = fleet, kvflags
        self._spans = itertools.count(1)
        self.living = {}

    def do(self, act):
        verb, *words = act.split()
        getattr(self, verb)(*words)

    def start(self, generation):
        for name in FLEET:
            self._starts(name, generation)
        self._settle()

    def replace(self):
        """As `plan restarts` says, one deployment after the other."""
        plan = self._kvflags("plan", "restarts", KEY, "--json").document["data"]
        assert plan, "the guide replaces where nothing is to be replaced"
        for one in plan:
            self._starts(one["deployment"], one["next_generation"])
        self._settle()

    def pass_(self, time):
        self._fleet.now_us += round(duration(time, "time") * 10**6)
        self._settle()

    def run(self, line):
        """What a terminal shows: the data, then what was said of it. A line may end in `| head -N`."""
        command, _, lines = line.partition(" | head -")
        result = self._kvflags(*shlex.split(command)[1:])
        shown = result.out.splitlines(keepends=True)[: int(lines) if lines else None]
        code = f"(exit code {result.code})\n" if result.code else ""
        return f"$ {line}\n{''.join(shown)}{result.err}{code}"

    def _starts(self, name, generation):
        facts = {"isolation": "unknown"} if name == SILENT else {}
        self.living[name] = (generation, self._fleet.pair(name, generation, **facts)[0])

    def _settle(self):
        """What lives heartbeats and moves something; what was replaced falls silent until its leases are over."""
        # In steps that a collector takes for no outage of its own, which would extend every lease.
        for step in range(1, 7):
            self._fleet.now_us += _MINUTE // 3
            self._look()
            if step % 3 == 0:
                for name, (generation, _) in self.living.items():
                    self._fleet.beat(name, generation)
        body = {"resourceSpans": [self._transfers(name, *runs) for name, runs in self.living.items()]}
        answer = httpx.post(f"{self._fleet.url}/v1/traces", json=body, trust_env=False)
        assert (answer.status_code, answer.json()) == (200, {}), answer.text
        self._fleet.now_us += _MINUTE // 3
        roll(self._fleet.db, self._fleet.now_us)
        conclude(self._fleet.db, self._fleet.now_us)
        self._look()

    def _look(self):
        with self._fleet.db.write() as conn:
            tick(conn, self._fleet.now_us, Timing())

    def _transfers(self, name, generation, variant):
        told = {"feature_flag.key": KEY, "feature_flag.result.variant": variant, "feature_flag.context.id": name}
        arm = self._fleet.arm(name, generation)
        told |= {"kvflags.arm": arm} if arm else {}
        told |= {"kvflags.rank": 0, "kvflags.world_size": 1, "kvflags.role": "decode", "kvflags.transfer.mode": "pull"}
        told |= {"kvflags.transfer.bytes": 12 << 20, "kvflags.transfer.blocks": 48}
        told |= {"kvflags.transfer.descriptors": 48 if variant == "on" else 1536}
        where = {"kvflags.deployment": name, "kvflags.generation": generation, "kvflags.epoch": 1}
        where |= {"kvflags.engine": f"{name.rpartition('/')[2]}-{generation}-decode", "kvflags.lab": True}
        spans = [self._span(told) for _ in range(20)]
        return {"resource": {"attributes": _any(where)}, "scopeSpans": [{"spans": spans}]}

    def _span(self, told):
        number = next(self._spans)
        began = self._fleet.now_us * 1000 + number
        lasted = {"kvflags.transfer.post_time": 400_000 if told["feature_flag.result.variant"] == "on" else 1_600_000}
        return {
            "traceId": f"{number:032x}",
            "spanId": f"{number:016x}",
            "name": "kv.transfer",
            "kind": 3,
            "startTimeUnixNano": str(began),
            "endTimeUnixNano": str(began + 3_000_000),
            "attributes": _any(told | lasted),
        }


def _any(values):
    kinds = {bool: "boolValue", int: "intValue", str: "stringValue"}
    return [{"key": key, "value": {kinds[type(value)]: value}} for key, value in values.items()]


@pytest.fixture
def walk(fleet, kvflags, monkeypatch):
    monkeypatch.setenv("LOGNAME", "ada")
    monkeypatch.setattr("socket.gethostname", lambda: "ops")
    return Walk(fleet, kvflags)


def test_the_guide_shows_what_its_commands_print(walk):
    page = GUIDE.read_text()
    written, at = [], 0
    for piece in pieces(page):
        if piece.kind == "act":
            walk.do(piece.text.replace("pass ", "pass_ "))
            continue
        written += [page[at : piece.begin], "\n".join(map(walk.run, piece.commands))]
        at = piece.end
    became = "".join(written) + page[at:]
    if os.environ.get("KVFLAGS_WRITE_GUIDE") == "1":
        GUIDE.write_text(became)
    assert became == page, "KVFLAGS_WRITE_GUIDE=1 pytest tests/cli/test_guide.py writes what is printed now"


def test_a_transcript_that_is_not_true_is_found(walk):
    [block] = pieces("```console\n$ kvflags flags list\nsomething else\n```\n")
    assert block.commands == ["kvflags flags list"]
    assert "No flags yet" in walk.run(*block.commands)
