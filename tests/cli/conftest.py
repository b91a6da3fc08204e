# SPDX-License-Identifier: Apache-2.0
"""Running the command line in this process, a real collector with engines that tests steer, and a sample report."""

from __future__ import annotations

import copy
import json
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from databases import opened
from listening import listening

from kvflags_cli.demo import pair as demo
from kvflags_cli.run import run
from kvflags_collector.app import create_app
from kvflags_collector.settings import Settings
from kvflags_collector.store.database import Database


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """stdout as the one JSON document that it must be."""
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch, tmp_path):
    """Nothing of the person's own settings reaches a test, and nobody finds a database of an earlier one."""
    for name in ("KVFLAGS_COLLECTOR_URL", "KVFLAGS_TOKEN", "KVFLAGS_DB", "FORCE_COLOR", "VLLM_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KVFLAGS_STRICT", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def kvflags(capsys):
    """`kvflags(*arguments) -> Result`: one invocation, its output taken apart."""

    def invoke(*arguments: str) -> Result:
        code = run(arguments)
        out, err = capsys.readouterr()
        return Result(int(code), out, err)

    return invoke


# The collector's clock in these tests: 2026-12-01 12:00:00 UTC, moved by hand.
NOON_US = 1_796_126_400 * 1_000_000

_FACTS = {
    "vllm": "0.32.0",
    "nixl": "1.5.1",
    "model_class": "gqa",
    "architecture": "LlamaForCausalLM",
    "backend": "FLASH_ATTN",
    "block_size": 16,
    "kv_heads_per_rank": 4,
    "tp": 1,
    "connector": "NixlConnector",
    "gpu": "H100",
    "isolation": "recreate",
}
_LAYOUTS = {"on": ("BHLNC", 1, True), "off": ("LBHNC", 8, False)}


class Fleet:
    """A real collector, and engines that say of themselves what a test makes them say."""

    def __init__(self, db: Database) -> None:
        self.url, self.db = "", db
        self.now_us = NOON_US
        self._http = httpx.Client(trust_env=False)
        self._beats: dict[str, dict[str, Any]] = {}
        self._told: dict[str, dict[str, Any]] = {}

    def connect(self, url: str) -> None:
        self.url = self._http.base_url = url

    def engine(self, deployment: str | None, generation: str, role: str, *, problems=(), **facts: Any) -> str:
        """Register one and let it heartbeat as what it was told to be; the variant it runs."""
        name = _id(deployment, generation, role)
        body = {"registration_id": name, "deployment": deployment, "generation": generation, "role": role}
        body |= {
            "features": ["cross_layer_blocks"],
            "kvflags": "0.1.0",
            "facts": _FACTS | facts,
            "problems": list(problems),
        }
        decisions = self._post("/api/v1/engines/register", body)["decisions"]
        variant = decisions[0]["variant"] if decisions else "off"
        self._told[name] = decisions[0] if decisions else {}
        resolved, regions, effective = _LAYOUTS[variant]
        layout = {"requested": resolved, "resolved": resolved, "regions": regions, "layers": 8, "effective": effective}
        beat = {"seq": 1, "engine_id": name, "facts": _FACTS | facts, "layout": layout, "problems": list(problems)}
        self._beats[name] = beat | {"exercised": {"ok": 100, "errors": 0}}
        self._post(f"/api/v1/engines/{name}/heartbeat", self._beats[name])
        return variant

    def pair(self, deployment: str, generation: str, **facts: Any) -> tuple[str, str]:
        return tuple(self.engine(deployment, generation, role, **facts) for role in ("prefill", "decode"))

    def beat(self, deployment: str, generation: str) -> None:
        """The pair heartbeats as before."""
        for role in ("prefill", "decode"):
            name = _id(deployment, generation, role)
            self._beats[name] |= {"seq": self._beats[name]["seq"] + 1}
            self._post(f"/api/v1/engines/{name}/heartbeat", self._beats[name])

    def arm(self, deployment: str, generation: str) -> str | None:
        """The arm that the decode engine was told."""
        return self._told[_id(deployment, generation, "decode")].get("arm")

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        response = self._http.post(path, json=body)
        assert response.is_success, response.text
        return response.json()

    def close(self) -> None:
        self._http.close()


def _id(deployment: str | None, generation: str, role: str) -> str:
    name = (deployment or "nameless").rpartition("/")[2]
    return f"{name}-{generation.replace('.', '-')}-{role}"


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """A collector on a free port, which the command line finds through the environment. Its salts are all zeros."""
    monkeypatch.setattr("secrets.token_hex", lambda size: "00" * size)
    settings = Settings(db=f"sqlite:///{tmp_path}/fleet.db", port=0)
    Database(settings.db, upgrade=True).close()
    with (
        closing(opened(settings.db)) as db,
        closing(Fleet(db)) as running,
        listening(create_app(settings, db, clock=lambda: running.now_us)) as url,
    ):
        running.connect(url)
        monkeypatch.setenv("KVFLAGS_COLLECTOR_URL", url)
        yield running


@pytest.fixture
def free_port():
    """A port that nobody listens on."""
    return demo.free_port()


_REPORT: dict[str, Any] = {
    "schema": "kvflags.report/1",
    "flag": {
        "key": "cross-layer-blocks",
        "feature": "cross_layer_blocks",
        "phase": "running",
        "revision": 2,
        "target": {"share": None, "count": 1},
        "expires": None,
        "expired": False,
    },
    "generated_at": "2026-11-30T22:10:03.000000Z",
    "fresh_as_of": "2026-11-30T22:10:02.000000Z",
    "verdict": {
        "state": "waiting",
        "reason": "too_few_deployments",
        "why": ["1 treated deployment, 4 are needed.", "No deployment was observed for 7 days."],
        "next": "Raise the count: kvflags rollout set cross-layer-blocks --count 4",
    },
    "criteria": [],
    "outcomes": [],
    "strata": [],
    "arms": [
        {
            "arm": "treatment",
            "deployments": 1,
            "transfers": 1250,
            "failed": 2,
            "errors": {"transfer_failed": 2},
            "bytes": 12582912,
            "descriptors_per_transfer": 5.25,
            "blocks_per_transfer": 5.25,
            "post_ms": {"mean": 0.4183, "p50": 0.4, "p99": 1.25},
            "transfer_ms": {"mean": 3.1, "p50": 2.9, "p99": 12.04},
        },
        {
            "arm": "control",
            "deployments": 1,
            "transfers": None,
            "failed": None,
            "errors": {},
            "bytes": None,
            "descriptors_per_transfer": None,
            "blocks_per_transfer": None,
            "post_ms": {"mean": None, "p50": None, "p99": None},
            "transfer_ms": {"mean": None, "p50": None, "p99": None},
        },
    ],
    "deployments": [
        {
            "deployment": "demo/lab/a",
            "generation": "r2",
            "epoch": 1,
            "arm": "treatment",
            "comparison": "included",
            "excluded_because": None,
            "variant": "on",
            "transfers": 1250,
            "failed": 2,
            "errors": {"transfer_failed": 2},
            "bytes": 12582912,
            "descriptors_per_transfer": 5.25,
            "blocks_per_transfer": 5.25,
            "post_ms": {"mean": 0.4183, "p50": 0.4, "p99": 1.25},
            "transfer_ms": {"mean": 3.1, "p50": 2.9, "p99": 12.04},
            "layout": {"requested": "BHLNC", "resolved": "BHLNC", "effective": True, "regions": 1, "layers": 8},
            "exercised": True,
            "refusals": [],
            "dropped": 3,
        },
        {
            "deployment": "demo/lab/b",
            "generation": "r2",
            "epoch": 1,
            "arm": "control",
            "comparison": "excluded",
            "excluded_because": "forced",
            "variant": "off",
            "transfers": None,
            "failed": None,
            "errors": {},
            "bytes": None,
            "descriptors_per_transfer": None,
            "blocks_per_transfer": None,
            "post_ms": {"mean": None, "p50": None, "p99": None},
            "transfer_ms": {"mean": None, "p50": None, "p99": None},
            "layout": {"requested": None, "resolved": "LBHNC", "effective": False, "regions": 8, "layers": 8},
            "exercised": False,
            "refusals": [{"code": "isolation", "says": "It is not stated what keeps generations apart"}],
            "dropped": 0,
        },
    ],
    "alarms": [
        {
            "kind": "mixed",
            "deployment": "demo/lab/c",
            "generation": "r1",
            "says": "prefill runs LBHNC, decode runs BHLNC",
            "first_at": "2026-11-30T22:09:00Z",
        }
    ],
    "feedback": {
        "positive": 0,
        "negative": 1,
        "items": [
            {
                "id": "m1",
                "sign": "negative",
                "source": "measured",
                "deployment": "demo/lab/c",
                "tags": ["mixed"],
                "withdrawn": False,
                "comment": "mixed generation",
                "author": "collector",
                "recorded_at": "2026-11-30T22:09:01Z",
            }
        ],
    },
    "data_health": {
        "effective_share": 1.0,
        "mixed_generations": 1,
        "dropped_spans": 3,
        "expired": 0,
        "incomplete": 0,
        "canaries": {},
    },
}


@pytest.fixture
def report_document():
    """`report_document(**changes)`: a report as the collector sends it, with top-level parts replaced."""

    def make(**changes: Any) -> dict[str, Any]:
        return copy.deepcopy(_REPORT) | changes

    return make
