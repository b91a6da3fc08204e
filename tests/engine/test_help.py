# SPDX-License-Identifier: Apache-2.0
"""`vllm serve --help` loads every plugin: ours must then ask nobody and import next to nothing."""

import os
import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.engine

# The CLI asks for the version of a distribution called "vllm", which the CPU build is not called.
HELP = """
import atexit, sys
from types import SimpleNamespace
import vllm.entrypoints.cli.main as cli
cli.importlib = SimpleNamespace(metadata=SimpleNamespace(version=lambda name: "0"))
atexit.register(lambda: print("OURS", sorted(m for m in sys.modules if m.startswith("kvflags")), file=sys.stderr))
sys.argv = ["vllm", "serve", "--help"]
cli.main()
"""


def test_help_registers_nothing_and_imports_next_to_nothing():
    with socket.create_server(("127.0.0.1", 0)) as collector:
        url = f"http://127.0.0.1:{collector.getsockname()[1]}"
        environ = os.environ | {"KVFLAGS_COLLECTOR_URL": url, "KVFLAGS_DEPLOYMENT": "a/b/c", "KVFLAGS_STRICT": "1"}
        ran = subprocess.run([sys.executable, "-c", HELP], env=environ, capture_output=True, text=True, check=True)
        collector.settimeout(0)
        with pytest.raises(BlockingIOError):
            collector.accept()
    assert "usage: vllm serve" in ran.stdout
    (ours,) = [line for line in ran.stderr.splitlines() if line.startswith("OURS")]
    assert "kvflags.connector.plugin" in ours
    # Deciding, observing and exporting come with an engine, not with a question about options.
    assert not [
        name for name in ("kvflags.decision", "kvflags.connector.wrap", "kvflags.telemetry.export") if name in ours
    ]
