# SPDX-License-Identifier: Apache-2.0
"""Whatever fails, hangs or is slow in ours, an engine gets what it gets without us: at each place that vLLM calls.

An engine's life is lived on stand-ins for vLLM's modules (the real ones: test_vllm, tests/contract), once plain and
once for each fault, and what vLLM sees of it is compared. The places are found in the code, so that none is forgotten.
"""

import gc
import importlib
import pkgutil
import socket
import sys
import threading
import time
from contextlib import suppress
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest

import kvflags.connector
from kvflags.connector import facts, guard, plugin
from kvflags.decision.heartbeat import Heartbeats
from kvflags.flags import Facts
from kvflags.telemetry.export import Exporter
from kvflags.telemetry.reporter import Reporter

WORKER = SimpleNamespace(name="WORKER")
# What ours may take together: 0.3 s for the collector at the start, a second at the end of the worker, and of the front
# end. The rest is a busy machine's.
BOUND_S = 2.3 + 5


def _places():
    """Every function of ours under a guard, by the name it fails under."""
    found = {}
    for one in pkgutil.iter_modules(kvflags.connector.__path__):
        module = importlib.import_module(f"kvflags.connector.{one.name}")
        classes = [value for value in vars(module).values() if isinstance(value, type)]
        for value in [*vars(module).values(), *(value for each in classes for value in vars(each).values())]:
            if getattr(value, "__code__", None) is _GUARD:
                found[f"{value.__module__}.{value.__qualname__}"] = value
    return found


_GUARD = guard.guarded(None)(lambda: None).__code__
PLACES = _places()
# What vLLM calls, and which of ours it comes to.
ENTRIES = {
    "the entry point of vllm.general_plugins": {"plugin.register"},
    "EngineArgs.create_engine_config": {"plugin._decide"},
    "AsyncLLM": {"plugin._with_stat_logger"},
    "the factory's loader": {"plugin._wrapped"},
    "kv_connector_module_path": {"plugin.by_path"},
    "connector: get_required_kvcache_layout": {"wrap._requested"},
    "connector: __init__": {"wrap._attach"},
    "connector: register_kv_caches": {"wrap._start"},
    "connector: shutdown": {"wrap._close", "observe.Observer.close", "runtime.Runtime._flushed"},
    "worker: posting a request's transfers": {"observe.Observer.enter", "observe.Observer.leave"},
    "worker: _log_failure": {"agent._tell", "observe.Observer.failed"},
    "NIXL: make_prepped_xfer": {"observe.Observer.prepared"},
    "NIXL: transfer": {"observe.Observer.posted"},
    "NIXL: check_xfer_state": {"observe.Observer.done"},
    "NIXL: get_xfer_telemetry": {"observe.Observer.measured"},
    "NIXL: release_xfer_handle": {"observe.Observer.released"},
    "stat logger: __init__": {"outcomes._outcomes"},
    "stat logger: record": {"outcomes._record"},
    "stat logger: log_engine_initialized": {"outcomes._start"},
}


class FakeAsyncLLM:
    """The front end, which makes the stat loggers that it is given and calls them."""

    def __init__(self, vllm_config, executor_class=None, log_stats=True, stat_loggers=None):
        self.loggers = [make(vllm_config=vllm_config, engine_indexes=[0]) for make in stat_loggers or ()]

    def run(self):
        for logger in self.loggers:
            logger.log_engine_initialized()
            logger.record(scheduler_stats=None, iteration_stats=None, mm_cache_stats=None, engine_idx=0)


class FakeFactory:
    """KVConnectorFactory: a loader for each name, as a closure over the module's path."""

    _registry: ClassVar = {}

    @classmethod
    def register_connector(cls, name, module_path, connector):
        def loader():
            return connector if module_path else None

        loader.__module__ = "vllm.distributed.kv_transfer.kv_connector.factory"
        cls._registry[name] = loader


def _connector(watched):
    class NixlPullConnector:
        """vLLM's own, which notes what it is asked."""

        def __init__(self, vllm_config, role, kv_cache_config=None):
            self.calls = [("init", kv_cache_config)]
            self.connector_worker = type(watched.worker)(watched.agent)

        @classmethod
        def get_required_kvcache_layout(cls, vllm_config):
            return "LBHNC"

        def register_kv_caches(self, kv_caches):
            self.calls.append(("register", sorted(kv_caches)))

        def shutdown(self):
            self.connector_worker.shutdown()
            self.calls.append(("shutdown",))

    return NixlPullConnector


def _config():
    return SimpleNamespace(
        kv_transfer_config=SimpleNamespace(
            kv_connector="NixlConnector", kv_role="kv_consumer", engine_id="engine-d", kv_connector_extra_config={}
        ),
        parallel_config=SimpleNamespace(
            rank=0, world_size=1, data_parallel_size=1, _api_process_count=1, _api_process_rank=0, node_rank_within_dp=0
        ),
        cache_config=SimpleNamespace(num_gpu_blocks=64),
    )


@pytest.fixture
def vllm(monkeypatch, tmp_path, watched):
    """Stand-ins where vLLM's modules would be, and the environment of an engine that takes part."""
    monkeypatch.delenv("KVFLAGS_STRICT")
    for name, value in {
        "KVFLAGS_COLLECTOR_URL": "http://127.0.0.1:1",
        "KVFLAGS_DEPLOYMENT": "c/ns/d",
        "KVFLAGS_STATE_DIR": str(tmp_path / "state"),
        "KVFLAGS_ON_UNREACHABLE": "wait:0.3",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(facts, "static_facts", lambda config, settings: Facts(vllm="0.32.0", model_class="gqa"))
    config = _config()
    FakeFactory._registry = {}
    connector = _connector(watched)
    FakeFactory.register_connector("NixlConnector", "vllm.nixl", connector)
    modules = {
        "vllm.engine.arg_utils": {
            "EngineArgs": type("EngineArgs", (), {"create_engine_config": lambda self: config}),
        },
        "vllm.distributed.kv_transfer.kv_connector.factory": {"KVConnectorFactory": FakeFactory},
        "vllm.distributed.kv_transfer.kv_connector.v1": {"nixl": SimpleNamespace(NixlConnector=connector)},
        "vllm.v1.engine.async_llm": {"AsyncLLM": type("AsyncLLM", (FakeAsyncLLM,), {})},
        "vllm.v1.metrics.loggers": {"AggregateStatLoggerBase": type("AggregateStatLoggerBase", (), {})},
    }
    for name, content in modules.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    guard._failures.clear()
    yield SimpleNamespace(agent=watched.agent, **{name.rpartition(".")[2]: sys.modules[name] for name in modules})
    guard._failures.clear()


@pytest.fixture
def live(vllm, meta_of):
    """`live()`: what vLLM sees of one engine from its start to its end; `ours=False`: without the plugin."""
    runtimes = []

    def life(*, ours=True):
        if ours:
            plugin.register()
        config = vllm.arg_utils.EngineArgs().create_engine_config()
        front_end = vllm.async_llm.AsyncLLM(config, None, True)
        front_end.run()
        connector_class = vllm.factory.KVConnectorFactory._registry["NixlConnector"]()
        by_path = (kvflags.connector if ours else vllm.v1.nixl).NixlConnector
        layout = connector_class.get_required_kvcache_layout(config)
        connector = connector_class(config, WORKER, "cache")
        connector.register_kv_caches({f"layer{number}": None for number in range(8)})
        worker = connector.connector_worker
        worker.start_load_kv({"good": meta_of(), "bad": meta_of(request="q"), "on its way": meta_of(request="w")})
        good, bad, _ = vllm.agent.posted
        vllm.agent.states |= {good: "DONE", bad: "ERR"}
        worker.poll()
        connector.shutdown()
        runtimes.append(getattr(connector, "_kvflags", None))
        seen = {
            "class": (connector_class.__name__, connector_class.__qualname__, connector_class.__module__),
            "layout": layout,
            "by path": (by_path.__name__, by_path.get_required_kvcache_layout(config)),
            "calls": connector.calls,
            "posted": len(vllm.agent.posted),
            "released": [vllm.agent.posted.index(handle) for handle in vllm.agent.released],
            "logged": worker.logged,
            "failed": worker._recv_failures,
        }
        # The front end is let go of: its stat loggers end.
        del front_end
        gc.collect()
        return seen

    yield life
    # A fault in our own end leaves threads behind, and whatever test comes next would meet them.
    for runtime in filter(None, runtimes):
        runtime.close()
    for thread in threading.enumerate():
        if thread.name.startswith("kvflags-"):
            thread.join(20)


@pytest.fixture
def plain(vllm, live):
    """Without us; the agent is as new afterwards."""
    seen = live(ours=False)
    vllm.agent.posted.clear()
    vllm.agent.released.clear()
    vllm.agent.states.clear()
    return seen


def test_the_life_is_one_worth_comparing(plain):
    assert plain == {
        "class": ("NixlPullConnector", "_connector.<locals>.NixlPullConnector", __name__),
        "layout": "LBHNC",
        "by path": ("NixlPullConnector", "LBHNC"),
        "calls": [("init", "cache"), ("register", [f"layer{number}" for number in range(8)]), ("shutdown",)],
        "posted": 3,
        "released": [0, 1, 2],
        "logged": [("transfer_failed", "bad")],
        "failed": {"bad"},
    }


def test_without_a_fault_everything_of_ours_runs_and_nothing_fails(plain, live):
    assert live() == plain
    assert guard.failures() == {}
    for thread in threading.enumerate():
        if thread.name.startswith("kvflags-"):
            thread.join(10)
            assert not thread.is_alive(), thread.name


def test_every_entry_is_guarded_and_every_guard_is_an_entry():
    assert set(PLACES) == {f"kvflags.connector.{place}" for places in ENTRIES.values() for place in places}


@pytest.mark.parametrize("place", PLACES)
def test_an_exception_at_any_place_changes_nothing(plain, live, place, monkeypatch):
    """The guarded function is replaced behind its guard."""
    guarded = PLACES[place]
    cell = guarded.__closure__[guarded.__code__.co_freevars.index("function")]
    real = cell.cell_contents

    def fail(*args, **kwargs):
        raise RuntimeError("injected")

    fail.__module__, fail.__qualname__ = real.__module__, real.__qualname__
    cell.cell_contents = fail
    try:
        seen = live()
    finally:
        cell.cell_contents = real
    assert seen == plain
    # It was really called: a place that the life does not come to would prove nothing.
    assert guard.failures()[place] >= 1


_THREADS = [(Exporter, "_drain"), (Reporter, "_keep"), (Heartbeats, "_beat")]


@pytest.mark.parametrize("fault", ["raises", "hangs", "is slow"])
@pytest.mark.parametrize(("thread", "work"), _THREADS, ids=[thread.__name__ for thread, _ in _THREADS])
def test_a_thread_of_ours_that_is_broken_changes_nothing(plain, live, monkeypatch, thread, work, fault):
    let_go, came = threading.Event(), threading.Event()

    def broken(*args):
        came.set()
        if fault == "raises":
            raise RuntimeError("injected")
        let_go.wait(60 if fault == "hangs" else 0.2)

    monkeypatch.setattr(thread, work, broken)
    began = time.monotonic()
    try:
        seen = live()
        took = time.monotonic() - began
    finally:
        let_go.set()
    assert came.wait(10)
    assert seen == plain
    assert took < BOUND_S


def _silent(connection, over):
    over.wait(60)


def _trickling(connection, over):
    while not over.wait(0.05):
        connection.sendall(b"H")


def _hanging_up(connection, over):
    connection.recv(1)


def _rambling(connection, over):
    connection.sendall(b"\0\xff" * 100_000)


def _failing(connection, over):
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nnull")


def _denying(connection, over):
    connection.recv(65_536)
    connection.sendall(b'HTTP/1.1 403 No\r\nContent-Length: 9\r\n\r\n{"a": {}}')


def _lying(connection, over):
    """200, and nonsense in the form of an answer."""
    connection.recv(65_536)
    body = b'{"decision": {"variant": "sideways", "epoch": []}, "heartbeat_s": "NaN"}'
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


@pytest.fixture
def listen():
    """`listen(talk)`: the address of a server that does that with each connection."""
    over, threads, listener = threading.Event(), [], socket.create_server(("127.0.0.1", 0))

    def serve(talk):
        def one(connection):
            with connection, suppress(OSError):
                talk(connection, over)

        def accept():
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threads.append(threading.Thread(target=one, args=(connection,)))
                    threads[-1].start()

        threads.append(threading.Thread(target=accept))
        threads[0].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield serve
    over.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for thread in threads:
        thread.join(5)


@pytest.mark.parametrize(
    "talk",
    [None, _silent, _trickling, _hanging_up, _rambling, _failing, _denying, _lying],
    ids=lambda talk: str(talk and talk.__name__),
)
def test_a_collector_of_any_kind_changes_nothing(plain, live, monkeypatch, listen, talk):
    monkeypatch.setenv("KVFLAGS_COLLECTOR_URL", listen(talk) if talk else "http://127.0.0.1:1")
    began = time.monotonic()
    seen = live()
    took = time.monotonic() - began
    assert seen == plain
    assert took < BOUND_S
    assert guard.failures() == {}
