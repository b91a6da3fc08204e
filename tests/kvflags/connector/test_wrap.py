# SPDX-License-Identifier: Apache-2.0
"""The subclass: the base in everything but the layout it asks for and what it observes. With vLLM's own: test_vllm."""

from types import SimpleNamespace

import pytest

from kvflags.connector import wrap as module
from kvflags.connector.agent import AgentProxy
from kvflags.connector.wrap import wrap

WORKER, SCHEDULER = SimpleNamespace(name="WORKER"), SimpleNamespace(name="SCHEDULER")


@pytest.fixture
def base(watched):
    class NixlFakeConnector:
        """Stands for NixlPullConnector."""

        marker = "base"

        def __init__(self, vllm_config, role, kv_cache_config=None):
            self.calls = ["init", kv_cache_config]
            self.connector_worker = type(watched.worker)(watched.agent) if role is WORKER else None

        @classmethod
        def get_required_kvcache_layout(cls, vllm_config):
            return "LBHNC"

        def register_kv_caches(self, kv_caches):
            self.calls.append(kv_caches)

        def start_load_kv(self, context, **kwargs):
            self.calls.append(context)

        def shutdown(self):
            self.calls.append("shutdown")

    return NixlFakeConnector


def test_looks_like_the_base(base):
    wrapper = wrap(base)
    assert issubclass(wrapper, base)
    assert wrapper is not base
    same = ("__name__", "__qualname__", "__module__", "__doc__", "marker")
    assert [getattr(wrapper, name) for name in same] == [getattr(base, name) for name in same]


def test_wraps_once(base):
    assert wrap(base) is wrap(base)
    assert wrap(wrap(base)) is wrap(base)


def test_overrides_nothing_that_need_not_be(base):
    ours = {name for name in vars(wrap(base)) if not name.startswith("__") or name == "__init__"}
    assert ours == {
        "__init__", "get_required_kvcache_layout", "register_kv_caches", "shutdown", "_kvflags", "_kvflags_wraps",
    }  # fmt: skip


def test_asks_for_the_decided_layout(base, told, configured, monkeypatch):
    monkeypatch.delenv("VLLM_KV_CACHE_LAYOUT", raising=False)
    wrapper = wrap(base)
    assert wrapper.get_required_kvcache_layout(configured(told("on"))) == "BHLNC"
    assert wrapper.get_required_kvcache_layout(configured(told("off"))) == "LBHNC"
    # A child of a MultiConnector, and a connector whose plugin did not run, find nothing in their configuration.
    assert wrapper.get_required_kvcache_layout(configured(None)) == "LBHNC"
    monkeypatch.setenv("VLLM_KV_CACHE_LAYOUT", "LBHNC")
    assert wrapper.get_required_kvcache_layout(configured(told("on"))) == "LBHNC"


def test_a_failure_of_ours_leaves_the_base(base, told, configured, monkeypatch):
    monkeypatch.delenv("KVFLAGS_STRICT")
    monkeypatch.setattr(module, "requested", lambda *_: 1 / 0)
    assert wrap(base).get_required_kvcache_layout(configured(told("on"))) == "LBHNC"
    monkeypatch.setattr("kvflags.connector.runtime.Runtime.__init__", lambda *_: 1 / 0)
    connector = wrap(base)(configured(told("on")), WORKER, "cache")
    connector.register_kv_caches({"layer": 1})
    connector.shutdown()
    assert connector.calls == ["init", "cache", {"layer": 1}, "shutdown"]


def test_the_bases_exceptions_pass_unchanged(base, told, configured):
    error = ValueError("vLLM's own")

    def fail(*_):
        raise error

    base.register_kv_caches = base.shutdown = fail
    base.get_required_kvcache_layout = classmethod(fail)
    connector = wrap(base)(configured(told("on")), WORKER)
    for call in (
        lambda: connector.register_kv_caches({}),
        connector.shutdown,
        lambda: wrap(base).get_required_kvcache_layout(configured(None)),
    ):
        with pytest.raises(ValueError, match="vLLM's own") as caught:
            call()
        assert caught.value is error


def test_only_a_worker_is_watched(base, told, configured):
    scheduler = wrap(base)(configured(told("on")), SCHEDULER)
    assert scheduler._kvflags is None
    worker = wrap(base)(configured(told("on")), WORKER)
    assert isinstance(worker.connector_worker.nixl_wrapper, AgentProxy)


def test_an_exception_of_the_base_while_shutting_down_does_not_keep_ours_from_ending(base, told, configured):
    def fail(self):
        raise RuntimeError("a handle in progress")

    base.shutdown = fail
    connector = wrap(base)(configured(told("on")), WORKER)
    connector._kvflags.observer._live["r"] = SimpleNamespace(request="r", end=0, record=lambda *a, **k: ("r",))
    with pytest.raises(RuntimeError, match="a handle in progress"):
        connector.shutdown()
    assert connector._kvflags._records.take(9) == [("r",)]
