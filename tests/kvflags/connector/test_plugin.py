# SPDX-License-Identifier: Apache-2.0
"""The entry point: what it patches, and when it keeps its hands off. (With vLLM's own modules: test_vllm.)"""

import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from kvflags.connector import plugin
from kvflags.decision import carry, resolve


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("KVFLAGS_DISABLED", "KVFLAGS_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KVFLAGS_COLLECTOR_URL", "http://127.0.0.1:1")


@pytest.fixture
def asked(monkeypatch):
    """The modules that the plugin wants to hear of."""
    names = []
    monkeypatch.setattr(plugin, "when_imported", lambda name, callback: names.append(name))
    return names


def test_waits_for_the_modules_it_patches(asked):
    plugin.register()
    assert asked == [
        "vllm.engine.arg_utils",
        "vllm.distributed.kv_transfer.kv_connector.factory",
        "vllm.v1.engine.async_llm",
    ]


@pytest.mark.parametrize(
    "environment",
    [
        {"KVFLAGS_COLLECTOR_URL": ""},
        {"KVFLAGS_COLLECTOR_URL": "not an address"},
        {"KVFLAGS_COLLECTOR_URL": "", "KVFLAGS_DEPLOYMENT": "c/ns/d"},
        {"KVFLAGS_DISABLED": "1"},
        {"KVFLAGS_DISABLED": "true"},
        {"KVFLAGS_TELEMETRY": "off"},
    ],
)
def test_does_nothing_without_a_collector_or_when_disabled(asked, monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    plugin.register()
    assert asked == []


def test_local_needs_no_collector(asked, monkeypatch, tmp_path):
    monkeypatch.setenv("KVFLAGS_COLLECTOR_URL", "")
    monkeypatch.setenv("KVFLAGS_TELEMETRY", "local")
    monkeypatch.setenv("KVFLAGS_STATE_DIR", str(tmp_path))
    plugin.register()
    assert len(asked) == 3


def test_never_raises(monkeypatch):
    monkeypatch.delenv("KVFLAGS_STRICT")
    monkeypatch.setattr(plugin, "when_imported", lambda *_: 1 / 0)
    plugin.register()


def test_registering_imports_nothing_heavy():
    code = (
        "import sys; from kvflags.connector.plugin import register; register(); register();"
        "print([m for m in ('vllm', 'torch', 'opentelemetry', 'requests', 'cryptography') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def arguments(config):
    class EngineArgs:
        def create_engine_config(self, usage_context=None, headless=False):
            """vLLM's own."""
            if isinstance(config, Exception):
                raise config
            return config

    return SimpleNamespace(EngineArgs=EngineArgs)


@pytest.fixture
def resolved(monkeypatch, told):
    """How often a decision was taken."""
    calls = []

    def take(settings, vllm_config, *, static_facts):
        calls.append(settings.collector_url)
        return told("on")

    monkeypatch.setattr(resolve, "resolve", take)
    return calls


def test_the_decision_is_taken_where_the_configuration_is_made(configured, told, resolved):
    config = configured(None)
    module = arguments(config)
    plugin._patch_arguments(module)
    plugin._patch_arguments(module)
    assert module.EngineArgs().create_engine_config(headless=True) is config
    assert carry.get(config) == told("on")
    assert resolved == ["http://127.0.0.1:1"]
    assert module.EngineArgs.create_engine_config.__doc__ == "vLLM's own."


def test_a_configuration_without_a_connector_is_left_alone(resolved):
    module = arguments(SimpleNamespace(kv_transfer_config=None))
    plugin._patch_arguments(module)
    module.EngineArgs().create_engine_config()
    assert resolved == []


def test_a_decision_that_fails_leaves_the_configuration_as_it_was(configured, monkeypatch):
    monkeypatch.delenv("KVFLAGS_STRICT")
    monkeypatch.setattr(resolve, "resolve", lambda *_, **__: 1 / 0)
    config = configured(None)
    module = arguments(config)
    plugin._patch_arguments(module)
    assert module.EngineArgs().create_engine_config() is config
    assert config.kv_transfer_config.kv_connector_extra_config == {}


def test_vllms_own_exception_passes_unchanged():
    error = ValueError("incompatible")
    module = arguments(error)
    plugin._patch_arguments(module)
    with pytest.raises(ValueError, match="incompatible") as caught:
        module.EngineArgs().create_engine_config()
    assert caught.value is error


# The factory's code, cut down to what the plugin looks at.
FACTORY = """
class KVConnectorFactory:
    _registry = {}

    @classmethod
    def register_connector(cls, name, module_path, class_name):
        def loader():
            return made[module_path, class_name]

        cls._registry[name] = loader

made = {}
"""


@pytest.fixture
def factory():
    module = ModuleType("vllm.distributed.kv_transfer.kv_connector.factory")
    exec(FACTORY, module.__dict__)
    for name in ("NixlConnector", "NixlPullConnector", "NixlPushConnector", "LMCacheConnectorV1"):
        module.made["vllm.nixl", name] = type(name, (), {})
        module.KVConnectorFactory.register_connector(name, "vllm.nixl", name)
    return module


def load(factory, name):
    return factory.KVConnectorFactory._registry[name]()


def test_nixls_connectors_are_wrapped_and_others_are_not(factory):
    other = factory.KVConnectorFactory._registry["LMCacheConnectorV1"]
    plugin._patch_factory(factory)
    before = dict(factory.KVConnectorFactory._registry)
    plugin._patch_factory(factory)
    assert factory.KVConnectorFactory._registry == before
    for name in ("NixlConnector", "NixlPullConnector", "NixlPushConnector"):
        assert load(factory, name)._kvflags_wraps is factory.made["vllm.nixl", name]
        assert load(factory, name) is load(factory, name)
    assert factory.KVConnectorFactory._registry["LMCacheConnectorV1"] is other


@pytest.mark.parametrize("how", ["its own loader", "the factory's loader over its own module"])
def test_stands_aside_for_another_plugin(factory, caplog, how):
    theirs = type("NixlConnector", (), {})
    if how == "its own loader":
        factory.KVConnectorFactory._registry["NixlConnector"] = lambda: theirs
    else:
        factory.made["dynamo.kv", "Theirs"] = theirs
        factory.KVConnectorFactory.register_connector("NixlConnector", "dynamo.kv", "Theirs")
    plugin._patch_factory(factory)
    assert load(factory, "NixlConnector") is theirs
    assert [record.message for record in caplog.records] == [
        "kvflags: NixlConnector is already replaced by another plugin; kvflags stands aside"
    ]


def test_a_release_without_one_of_the_names(factory):
    del factory.KVConnectorFactory._registry["NixlPushConnector"]
    plugin._patch_factory(factory)
    assert "NixlPushConnector" not in factory.KVConnectorFactory._registry


def test_a_class_that_cannot_be_wrapped_is_used_as_it_is(factory, monkeypatch):
    monkeypatch.delenv("KVFLAGS_STRICT")
    monkeypatch.setattr("kvflags.connector.wrap.wrap", lambda _: 1 / 0)
    plugin._patch_factory(factory)
    assert load(factory, "NixlConnector") is factory.made["vllm.nixl", "NixlConnector"]
