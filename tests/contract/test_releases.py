# SPDX-License-Identifier: Apache-2.0
"""Our wrapper on released vLLMs' own classes: five of them on each run, all twelve in `make soak`."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from releases import CACHE, EACH_RUN, LAYOUTS, RELEASES, connectors, python_files

from kvflags_cli.demo.model import make_model

PROBE = Path(__file__).with_name("probe.py")
ROOT = Path(__file__).parents[2]
ALL = bool(os.environ.get("KVFLAGS_SOAK_RELEASES"))


@pytest.fixture(params=sorted(RELEASES) if ALL else EACH_RUN)
def seen(request, tmp_path_factory):
    """What one release showed: looked at once in a run, whichever process of it comes first."""
    release = request.param
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    answer = shared / f"contract-{release}.json"
    with (shared / f"contract-{release}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answer.exists():
            answer.write_text(_probed(python_files(release), tmp_path_factory.mktemp("contract")))
    return json.loads(answer.read_text()) | {"minor": tuple(int(part) for part in release.split("."))}


def _probed(files, folder):
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("KVFLAGS_", "VLLM_", "OTEL_"))}
    path = [str(files), *(str(ROOT / part) for part in (".", "cli", "collector", "migrations"))]
    environ |= {
        "PYTHONPATH": os.pathsep.join(path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "VLLM_PLUGINS": "",
        "UCX_TLS": "tcp,shm,self",
        "VLLM_CACHE_ROOT": str(CACHE / "inspected"), "VLLM_NO_USAGE_STATS": "1",
        "KVFLAGS_COLLECTOR_URL": "http://127.0.0.1:1", "KVFLAGS_STRICT": "1", "KVFLAGS_FORCE": "on",
        "KVFLAGS_DEPLOYMENT": "test/contract/one", "KVFLAGS_STATE_DIR": str(folder / "state"),
        "KVFLAGS_LAB_CPU_LAYOUTS": "1",
    }  # fmt: skip
    command = [sys.executable, str(PROBE), str(make_model(folder))]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stderr[-4000:] + ran.stdout[-2000:]
    return ran.stdout.splitlines()[-1]


def test_it_is_the_release_that_was_asked_for(seen):
    assert tuple(int(part) for part in seen["release"].split(".")[:2]) == seen["minor"]


def test_every_class_is_wrapped_and_can_be_told_by_nothing(seen):
    assert set(seen["classes"]) == connectors(".".join(map(str, seen["minor"])))
    assert seen["classes"] == {name: {"wraps": True, "differs": []} for name in seen["classes"]}


def test_the_decision_reaches_the_hook(seen):
    assert seen["variant"] == "on"
    assert seen["asked"] == ("BHLNC" if seen["minor"] >= LAYOUTS else "HND")
    assert seen["resolved"] == ("BHLNC" if seen["minor"] >= LAYOUTS else None)


def test_what_was_registered_is_seen(seen):
    labels = seen["labels"]
    took_hold = seen["minor"] >= LAYOUTS
    assert labels["kvflags.layout.layers"] == 8
    # In 0.22 keys and values of a layer are regions of their own.
    assert labels["kvflags.layout.regions"] == (1 if took_hold else 16 if seen["minor"] == (0, 22) else 8)
    assert labels["kvflags.effective"] is took_hold
    assert labels["kvflags.attention.backend"] == "CPU_ATTN"
    assert labels["kvflags.block_size"] == 64


def test_a_failure_of_vllm_reaches_the_funnel(seen):
    [failed] = seen["failed"]
    assert failed["kind"] in {"handshake_failed", "handshake_setup_failed"}
    assert (failed["request"], failed["remote"], failed["blocks"]) == ("asked", "held", 2)


def test_nothing_of_ours_failed(seen):
    assert seen["guarded"] == {}
