# SPDX-License-Identifier: Apache-2.0
"""The story of the demo, step by step, without a word on how it is shown.

Two deployments are compared, `blue` and `green`; each is observed in a first generation, then one of them (the hash
says which) is treated in the second. A third, `mixed`, is set up wrongly on purpose: its decode engine is forced to the
other variant. That one is excluded from the comparison, and must show up as error spans, an alarm and negative
feedback.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvflags.errors import KvflagsError, OperatorError
from kvflags.lab import SETTING as LAB
from kvflags_cli.demo.engine import EngineError
from kvflags_cli.demo.model import make_model
from kvflags_cli.demo.pair import Pair
from kvflags_cli.demo.service import Service
from kvflags_cli.demo.traffic import prompts

__all__ = ["FLAG", "Step", "scene"]

FLAG = "cross-layer-blocks"
COMPARED = ("demo/demo/blue", "demo/demo/green")
MIXED = "demo/demo/mixed"

# Requests to each compared deployment: the pool of 128 blocks is handed out several times over, which fragments it,
# and two cores still do them in a minute or two. The first generation only has to be observed; the
# mixed one fails every time, so a handful shows it.
_OBSERVED, _MEASURED, _FAILING = 16, 200, 6
_GENERATE = 4


@dataclass(frozen=True, slots=True)
class Step:
    """What is about to happen, in one line, and the work. `run` returns a line that says what came of it."""

    title: str
    run: Callable[[], str]


def scene(folder: Path, service: Service, stack: ExitStack) -> Iterator[Step]:
    """The steps in order; each must have run before the next is asked for. What must be undone goes on `stack`.

    One pair at a time: NIXL's progress thread polls without a pause, so each idle engine costs a core.
    """
    environ = {"KVFLAGS_COLLECTOR_URL": service.url, "KVFLAGS_ISOLATION": "recreate", LAB: "1"}
    model = folder / "models"

    def write_model() -> str:
        nonlocal model
        model = make_model(folder / "models")
        return "8 layers, 4 KV heads, seeded random weights"

    def pair(name: str, generation: str, **own: Any) -> Pair:  # noqa: ANN401 (fields of Pair, as they are)
        return Pair(name=name, generation=generation, model=model, folder=folder, environ=environ, **own)

    yield Step("Make the model", write_model)
    yield Step(f"Create the flag {FLAG}", lambda: _create_flag(service))
    for name in COMPARED:
        title = f"{_short(name)}, first generation: start it, send {_OBSERVED} requests, observe"
        yield Step(title, _living(pair(name, "r1"), stack, lambda one: _observe(service, one)))
    yield Step("Roll out to a count of one", lambda: _roll_out(service))
    for name in COMPARED:
        title = f"{_short(name)}, second generation: start it, send {_MEASURED} requests"
        yield Step(title, _living(pair(name, "r2"), stack, _measure))
    wrong = pair(MIXED, "r2", decode_environ={"KVFLAGS_FORCE": "on"})
    title = f"{_short(MIXED)}, its decode engine forced on: start it, send {_FAILING} requests"
    yield Step(title, _living(wrong, stack, lambda one: _expect_failures(service, one)))
    yield Step("Wait until every transfer is in the report", lambda: _settle(service))


def _short(deployment: str) -> str:
    return deployment.rpartition("/")[2]


def _living(pair: Pair, stack: ExitStack, work: Callable[[Pair], str]) -> Callable[[], str]:
    """Start the pair, do the work, stop the pair: the deployment is replaced whole, as `recreate` promises."""

    def run() -> str:
        stack.callback(pair.stop)
        begin = time.monotonic()
        pair.start().wait_ready()
        started = time.monotonic() - begin
        outcome = work(pair)
        pair.stop()
        return f"{outcome} (started in {started:.0f} s)"

    return run


def _create_flag(service: Service) -> str:
    body = {
        "key": FLAG,
        "feature": "cross_layer_blocks",
        "baseline_s": 0,
        "quiet_s": 0,
        "author": "kvflags demo",
        "reason": "the demo: no baseline, no quiet time",
    }
    with service.client() as client:
        if any(flag["key"] == FLAG for flag in client.items("flags")):
            raise OperatorError("this demo has been here before", hint="start it with a new --folder")
        client.post("flags", body=body)
    return "draft: installed everywhere, on nowhere"


def _observe(service: Service, pair: Pair) -> str:
    pair.send(prompts("observed", _OBSERVED), _GENERATE)
    _wait(lambda: pair.name in _observed(service), f"the collector to observe {pair.name}")
    return "observed"


def _observed(service: Service) -> set[str]:
    with service.client() as client:
        items = client.items("deployments")
    return {item["deployment"] for item in items if item["observed_at"]}


def _roll_out(service: Service) -> str:
    body = {"count": 1, "author": "kvflags demo", "reason": "the demo: one treated, one control"}
    with service.client() as client:
        client.put("flags", FLAG, "target", body=body)
        dealt = client.get("flags", FLAG, "status")["deployments"]
    arms = {_short(row["deployment"]): row["arm"] for row in dealt if row["deployment"] in COMPARED}
    if sorted(map(str, arms.values())) != ["control", "treatment"]:
        raise KvflagsError(f"one should be treated and one control, but the collector dealt {arms}")
    return ", ".join(f"{name} is {arm}" for name, arm in sorted(arms.items()))


def _measure(pair: Pair) -> str:
    begin = time.monotonic()
    results = pair.send(prompts("measured", _MEASURED, seed=1), _GENERATE)
    wrong = sum(result.finish_reason != "length" for result in results.values())
    if wrong:
        raise KvflagsError(f"{wrong} of {_MEASURED} requests to {pair.name} failed")
    return f"all answered, {_MEASURED / (time.monotonic() - begin):.1f} a second"


def _expect_failures(service: Service, pair: Pair) -> str:
    results = pair.send(prompts("mixed", _FAILING, seed=2, longest=300), _GENERATE)
    failed = sum(result.finish_reason == "error" for result in results.values())
    if failed != _FAILING:
        raise KvflagsError(f"all {_FAILING} requests should have failed, but {failed} did")
    _wait(lambda: bool(_report(service)["alarms"]), "the collector to name the mixed generation")
    return f"{failed} of {_FAILING} failed, as they must; nothing hung or crashed, and the collector named it"


def _report(service: Service) -> dict[str, Any]:
    with service.client() as client:
        return client.get("flags", FLAG, "report")


def _settle(service: Service) -> str:
    """Every measured transfer and every failure is in the roll-ups, once."""
    wanted = dict.fromkeys(COMPARED, (_MEASURED, 0)) | {MIXED: (_FAILING, _FAILING)}

    def counted() -> dict[str, tuple[int, int]]:
        rows = [row for row in _report(service)["deployments"] if row["generation"] == "r2"]
        return {row["deployment"]: (row["transfers"], row["failed"]) for row in rows}

    _wait(lambda: counted() == wanted, "the collector to count every span", says=lambda: f"{counted()} of {wanted}")
    return "nothing is missing"


def _wait(done: Callable[[], bool], what: str, *, says: Callable[[], str] = str, timeout: float = 120) -> None:
    """Until `done`. EngineError when it takes longer, with what `says` tells then."""
    until = time.monotonic() + timeout
    while not done():
        if time.monotonic() > until:
            raise EngineError(f"waited {timeout:.0f} s for {what} {says()}".rstrip())
        time.sleep(0.5)
