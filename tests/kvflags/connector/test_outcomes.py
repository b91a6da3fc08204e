# SPDX-License-Identifier: Apache-2.0
"""The stat logger against vLLM's own classes: one process, since importing vLLM takes 10 s and leaves warnings."""

import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from threading import Thread
from types import SimpleNamespace

import pytest

from kvflags.connector import outcomes
from kvflags.connector.outcomes import Outcomes, stat_logger, wanted
from kvflags.decision import last_heard
from kvflags.decision.carry import Carried
from kvflags.decision.state import State
from kvflags.flags import Decision
from kvflags.settings import Settings
from kvflags.telemetry.attributes import Name
from kvflags_collector.ingest.outcomes import decode

SCRIPT = """
import inspect, json, sys, time
from types import SimpleNamespace
from kvflags.connector import plugin
plugin.register()
from vllm.v1.engine import FinishReason, EngineCoreEvent, EngineCoreEventType, EngineCoreOutput
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.metrics import loggers
from vllm.v1.metrics.stats import IterationStats, LoRARequestStates, RequestStateStats, SchedulerStats
plugin.register()
from kvflags.decision import carry
from kvflags.decision.carry import Carried
from kvflags.flags import Decision

def config(url, ranks=1, connector=True):
    transfer = SimpleNamespace(engine_id="e", kv_connector_extra_config={})
    made = SimpleNamespace(
        kv_transfer_config=transfer if connector else None,
        parallel_config=SimpleNamespace(data_parallel_size=ranks), cache_config=SimpleNamespace(num_gpu_blocks=None),
    )
    if connector:
        decision = Decision(feature="cross_layer_blocks", flag="clb", variant="on", reason="arm", arm="treatment")
        registration = {"deployment": "c/ns/d", "generation": "r1", "role": "decode", "facts": {"vllm": "0.32.0"}}
        carry.put(made, Carried(source="registered", reason="arm", registration_id="i", decision=decision,
                                registered=True, registration=registration, url=url))
    return made

def factories(vllm_config, log_stats=True, given=None):
    bound = plugin._with_stat_logger(
        inspect.signature(AsyncLLM.__init__), (None, vllm_config, None, log_stats), {"stat_loggers": given})
    return None if bound is None else bound.arguments["stat_loggers"]

url = sys.argv[1]
ours = factories(config(url, ranks=2))
told = {
    "patched": hasattr(AsyncLLM.__init__, "_kvflags"),
    "parameters": [name in inspect.signature(AsyncLLM.__init__).parameters for name in ("log_stats", "stat_loggers")],
    "added": [len(ours), len(factories(config(url), given=[object]))],
    "nothing": [factories(config(url), False), factories(config(None)), factories(config(url, connector=False))],
}
vllm_config = config(url, ranks=2)
manager = object.__new__(loggers.StatLoggerManager)
manager.stat_loggers = [ours[0](vllm_config=vllm_config, engine_indexes=[0, 1])]
vllm_config.cache_config.num_gpu_blocks = 256
manager.log_engine_initialized()
manager.record_admission_rejection("max_num_queued_reqs")
manager.record_sleep_state(0, 0)

request, stats = RequestStateStats(arrival_time=0.0), IterationStats()
events = [EngineCoreEvent.new_event(kind, 1.0) for kind in (EngineCoreEventType.QUEUED, EngineCoreEventType.PREEMPTED)]
request.arrival_time = stats.iteration_timestamp - 0.5
def output(events=None):
    return EngineCoreOutput(request_id="r", new_token_ids=[1, 2], events=events)
lora = LoRARequestStates()
stats.update_from_output(output(events), 10.0, True, request, lora, None)
stats.prompt_token_stats.total = 100
stats.update_from_output(output(), 10.25, False, request, lora, None)
stats.update_from_finished_request(FinishReason.ERROR, "r", 100, None, request)
scheduler = SchedulerStats(kv_cache_usage=0.5)
scheduler.prefix_cache_stats.record(64, 16, preempted=False)
manager.record(scheduler, stats, engine_idx=1)
manager.record(None, None, engine_idx=0)
manager.record(scheduler, stats, engine_idx=7)
print(json.dumps(told))
from kvflags.telemetry.resource import operators
while not operators.cache_info().currsize:
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def sink():
    """A collector in a thread that keeps what it is sent."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}", bodies=bodies)
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def seen(sink):
    """What the process found, and what had come when it ended."""
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KVFLAGS_")}
    environ |= {"KVFLAGS_COLLECTOR_URL": sink.url, "KVFLAGS_STRICT": "1", "VLLM_PLUGINS": ""}
    command = [sys.executable, "-c", SCRIPT, sink.url]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


def test_vllms_front_end_is_given_our_stat_logger(seen):
    assert seen["patched"]
    assert seen["parameters"] == [True, True]
    assert seen["added"] == [1, 2]


def test_nothing_is_added_without_statistics_a_collector_or_a_connector(seen):
    assert seen["nothing"] == [None, None, None]


def test_what_vllm_measured_arrives_when_the_process_ends(seen, sink):
    ((path, body),) = sink.bodies
    assert path == "/v1/metrics"
    points = {point.key[3:]: point for point in decode(body, time.time_ns()).points}
    mine = {key[2].removeprefix("kvflags.outcome."): point for key, point in points.items() if key[0] == "e_dp1"}
    values = {name: point.sum_micro / 10**6 for name, point in mine.items()}
    assert values == {
        "time_to_first_token": 0.5,
        "inter_token_latency": 0.25,
        "kv_cache_usage": 0.5,
        "prompt_tokens": 100,
        "output_tokens": 4,
        "requests": 1,
        "preemptions": 1,
        "prefix_queries": 64,
        "prefix_hits": 16,
        "kv_blocks": 128,
    }
    assert {key[1] for key in points} == {"treatment"}
    assert [key[2] for key in points if key[0] == "e_dp0"] == ["kvflags.outcome.kv_blocks"]
    assert b"error" in body
    assert b'"r"' not in body


class Base:
    """vLLM's AggregateStatLoggerBase, of which nothing matters here."""


@pytest.fixture
def front_end(configured, told):
    """A configuration as the front end has it."""
    made = configured(told("on"))
    made.cache_config = SimpleNamespace(num_gpu_blocks=64)
    made.parallel_config = SimpleNamespace(data_parallel_size=1)
    return made


def test_a_fault_of_ours_does_not_reach_the_front_end(front_end, monkeypatch):
    monkeypatch.delenv("KVFLAGS_STRICT")
    logger = stat_logger(Base)(front_end, [0])
    logger.record(object(), object(), engine_idx=0)
    monkeypatch.setattr(Outcomes, "start", lambda self: 1 / 0)
    logger.log_engine_initialized()
    monkeypatch.setattr(outcomes, "Reporter", lambda *_, **__: 1 / 0)
    broken = stat_logger(Base)(front_end, [0])
    broken.record(None, None)
    broken.log_engine_initialized()


def test_later_releases_may_pass_more(front_end):
    stat_logger(Base)(front_end, [0]).record(None, None, mm_cache_stats=None, engine_idx=0, something_new=1)


@pytest.mark.parametrize(
    ("environ", "is_wanted"), [({}, True), ({"OTEL_SDK_DISABLED": "true"}, False), ({"OTEL_SDK_DISABLED": "no"}, True)]
)
def test_the_sdks_switch_is_honoured(front_end, environ, is_wanted):
    assert wanted(front_end, environ) is is_wanted


def test_without_a_decision_carried_nothing_is_wanted(configured, told):
    assert not wanted(configured(None), {})
    assert not wanted(configured(told("on", url=None)), {})


def test_a_decision_that_only_the_worker_heard_is_on_the_outcomes_too(front_end, tmp_path):
    environ = {
        "KVFLAGS_COLLECTOR_URL": "http://127.0.0.1:1",
        "KVFLAGS_DEPLOYMENT": "c/ns/d",
        "KVFLAGS_GENERATION": "r41",
        "KVFLAGS_STATE_DIR": str(tmp_path),
    }
    registration = {"deployment": "c/ns/d", "generation": "r41", "role": "decode", "facts": {}}
    told = Carried(
        source="fallback", reason="unreachable", registration_id="i", registration=registration, url="http://x"
    )
    made = Outcomes(front_end, told, [0], environ)
    (before,) = made._reports()
    assert Name.EPOCH not in before.labels.resource
    heard = Decision(feature="cross_layer_blocks", flag="clb", variant="off", arm="control", reason="arm", epoch=4)
    last_heard.remember(State.of(Settings.from_environ(environ)), heard, [])
    (after,) = made._reports()
    assert (after.labels.resource[Name.EPOCH], after.labels.span[Name.ARM]) == (4, "control")
    # It serves without the layout, whatever its peers were told: outside the comparison.
    last_heard.remember(
        State.of(Settings.from_environ(environ)), Decision.from_json(heard.to_json() | {"variant": "on"}), []
    )
    (other,) = made._reports()
    assert (other.labels.span[Name.VARIANT], Name.ARM in other.labels.span) == ("off", False)
