# SPDX-License-Identifier: Apache-2.0
"""The canary against vLLM's own servers: equal answers over a real transfer, and a corrupted block that is found."""

import json
import os
import subprocess
import sys

import pytest
from fleet import FLAG
from openai_server import Server, give_tokenizer

from kvflags_cli.demo.model import make_model

pytestmark = pytest.mark.engine

# Loaded by vLLM as any plugin: zeroes the first block of one layer of each request whose transfer has ended.
CORRUPTION = """
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker


def load():
    worker = base_worker.NixlBaseConnectorWorker
    register, done = worker.register_kv_caches, worker._pop_done_transfers

    def registered(self, caches):
        self._first = next(iter(caches.values()))
        return register(self, caches)

    def corrupted(self, transfers):
        ended = done(self, transfers)
        for request in ended[0] & self._recving_metadata.keys():
            block = self._recving_metadata[request].local_block_ids[0][0]
            self._first.select(self._first.shape.index(96), block).zero_()
        return ended

    worker.register_kv_caches, worker._pop_done_transfers = registered, corrupted
"""


@pytest.fixture(scope="module")
def corruption(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corruption")
    (folder / "corruption.py").write_text(CORRUPTION)
    (folder / "corruption-1.dist-info").mkdir()
    (folder / "corruption-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: corruption\nVersion: 1\n")
    entry = "[vllm.general_plugins]\ncorruption = corruption:load\n"
    (folder / "corruption-1.dist-info" / "entry_points.txt").write_text(entry)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


@pytest.fixture(scope="module")
def model(fleet):
    return give_tokenizer(make_model(fleet.folder.parent / "models"))


NAME = "test/engine/canary"


@pytest.fixture(scope="module")
def start(fleet, model):
    """`start(role, environ) -> Server` of one generation, which is treated from its first engine on."""
    stated = {"deployment": NAME, "isolation": "recreate", "backend": "CPU_ATTN", "block_size": 128}
    fleet.put("declarations", body=stated)
    fleet.target(percent=100)
    fleet.put("flags", FLAG, "opts", body={"deployment": NAME, "opted": "in"})
    servers = []

    def one(kv_role, environ=()):
        own = {
            "KVFLAGS_COLLECTOR_URL": fleet.service.url,
            "KVFLAGS_DEPLOYMENT": NAME,
            "KVFLAGS_GENERATION": "r1",
            "KVFLAGS_STATE_DIR": str(fleet.folder / "state" / str(len(servers))),
            "KVFLAGS_STRICT": "1",
            "KVFLAGS_LAB_CPU_LAYOUTS": "1",
        }
        log = fleet.folder / "logs" / f"canary-{len(servers)}-{kv_role}.log"
        servers.append(Server(model, kv_role, log, own | dict(environ)))
        return servers[-1]

    yield one
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def prefill(start):
    return start("kv_producer")


def canary(fleet, prefill, decode):
    """The exit code and the document of one run."""
    command = [sys.executable, "-m", "kvflags_cli", "canary", "run", "--json", "--collector", fleet.service.url]
    command += ["--prefill", prefill.wait_ready().url, "--decode", decode.wait_ready().url]
    command += ["--prompts", "4", "--tokens", "8", "--longest", "400", "--deployment", NAME, "--generation", "r1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["data"]


def pin(fleet):
    return fleet.get("flags", FLAG, "explain", deployment=NAME)["pin"]


def test_a_sound_transfer_in_whole_rows_matches(fleet, start, prefill):
    decode = start("kv_consumer")
    code, found = canary(fleet, prefill, decode)
    assert (code, found["outcome"], found["compared"], found["mismatched"]) == (0, "match", 4, 0), found
    # Every prompt crossed: what was compared was fetched, not computed anew or left in a cache.
    assert found["fetched_tokens"] >= 4 * 20
    assert found["recorded"]["condemned"] == []
    assert (pin(fleet)["variant"], pin(fleet)["state"]) == ("on", "pinned"), pin(fleet)
    decode.stop()


def test_a_corrupted_block_is_found_and_condemns_the_generation(fleet, start, prefill, corruption):
    code, found = canary(fleet, prefill, start("kv_consumer", corruption))
    assert (code, found["outcome"]) == (1, "mismatch"), found
    assert found["recorded"]["condemned"] == [FLAG]
    report = fleet.report()
    assert [(alarm["kind"], alarm["generation"]) for alarm in report["alarms"]] == [("canary_mismatch", "r1")]
    assert [item["tags"] for item in report["feedback"]["items"]] == [["canary_mismatch"]]
    assert report["data_health"]["canaries"]["on"]["mismatched"] == 1
    assert (pin(fleet)["state"], pin(fleet)["condemned_reason"]) == ("condemned", "canary_mismatch")
