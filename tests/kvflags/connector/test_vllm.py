# SPDX-License-Identifier: Apache-2.0
"""Against vLLM's own classes, without an engine: one process, since importing vLLM takes 10 s and leaves warnings."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")

SCRIPT = """
import inspect, json, os
from types import SimpleNamespace
from kvflags.connector import plugin
plugin.register()
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import nixl, supports_hma
from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
from vllm.config import KVTransferConfig
plugin.register()
import kvflags.connector
from kvflags.connector.agent import AgentProxy
from kvflags.connector.host import Agent, Worker
from kvflags.connector.runtime import _POSTING

def transfer(**more):
    return KVTransferConfig(kv_connector="NixlConnector", kv_role="kv_both", kv_buffer_device="cpu", **more)

wrapped = KVConnectorFactory.get_connector_class(transfer())
by_path = KVConnectorFactory.get_connector_class(transfer(kv_connector_module_path="kvflags.connector"))
push = KVConnectorFactory.get_connector_class_by_name("NixlPushConnector")
worker = inspect.getsource(inspect.getmodule(nixl.NixlPullConnectorWorker.__mro__[1]))
os.environ["KVFLAGS_DISABLED"] = "1"
plain = KVConnectorFactory.get_connector_class(transfer(kv_connector_module_path="kvflags.connector"))
print(json.dumps({
    "name": [wrapped.__name__, wrapped.__module__, wrapped.__qualname__],
    "bases": [wrapped.__mro__[1] is nixl.NixlPullConnector, push.__mro__[1] is nixl.NixlPushConnector],
    "one class": by_path is wrapped,
    "disabled": plain is nixl.NixlPullConnector,
    "hma": supports_hma(wrapped),
    "configuration": [hasattr(c.create_engine_config, "_kvflags") for c in (EngineArgs, AsyncEngineArgs)],
    "posting": [hasattr(nixl.NixlPullConnectorWorker, _POSTING[0]), hasattr(nixl.NixlPushConnectorWorker, _POSTING[1])],
    "worker": [name for name in Worker.__annotations__ if f"self.{name}" not in worker],
    "failures": list(inspect.signature(nixl.NixlPullConnectorWorker._log_failure).parameters),
}))
"""


@pytest.fixture(scope="module")
def seen():
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KVFLAGS_")}
    environ |= {"KVFLAGS_COLLECTOR_URL": "http://127.0.0.1:1", "KVFLAGS_STRICT": "1", "VLLM_PLUGINS": ""}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


def test_the_registered_class_is_ours_under_vllms_name(seen):
    module = "vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector"
    assert seen["name"] == ["NixlPullConnector", module, "NixlPullConnector"]
    assert seen["bases"] == [True, True]


def test_both_ways_in_lead_to_one_class(seen):
    assert seen["one class"]


def test_disabled_leaves_vllms_own_class(seen):
    assert seen["disabled"]


def test_what_vllm_asks_of_the_class_is_answered_as_before(seen):
    assert seen["hma"]


def test_the_configuration_is_patched_for_both_kinds_of_engine(seen):
    assert seen["configuration"] == [True, True]


def test_everything_that_we_touch_is_there(seen):
    assert seen["posting"] == [True, True]
    assert seen["worker"] == []
    assert seen["failures"][:6] == ["self", "failure_type", "req_id", "msg", "error", "meta"]
