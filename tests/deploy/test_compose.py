# SPDX-License-Identifier: Apache-2.0
"""deploy/compose.yaml without containers: its commands, run here, serve and are healthy, and its parts fit."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parents[2] / "deploy" / "compose.yaml"
COLLECTOR: dict[str, Any] = yaml.safe_load(FILE.read_text())["services"]["collector"]
KVFLAGS = [sys.executable, "-m", "kvflags_cli"]


def test_it_serves_and_is_healthy_and_ends_in_time(tmp_path):
    url = f"sqlite:///{tmp_path}/kvflags.db"
    # As the file tells, with a database and ports of this test's own.
    own = {"postgresql://kvflags@database/kvflags": url, "0.0.0.0": "127.0.0.1", "4318": "0", "4317": "0"}
    told = re.sub(r"\\\n#\s+", "", FILE.read_text())
    first = shlex.split(re.search(r"run --rm collector (tokens create .*)", told)[1])
    subprocess.run([*KVFLAGS, *(own.get(word, word) for word in first)], check=True, capture_output=True, timeout=60)
    command = [*KVFLAGS, *(own.get(word, word) for word in COLLECTOR["command"])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())[1]
            asked, *check = COLLECTOR["healthcheck"]["test"][1:]
            assert asked == "python"
            check = [word.replace("4318", port) for word in check]
            subprocess.run([sys.executable, *check], check=True, timeout=60)
            process.terminate()
            assert process.wait(int(COLLECTOR["stop_grace_period"].removesuffix("s"))) == 0
        finally:
            process.kill()


def test_only_this_machine_reaches_what_is_not_encrypted():
    assert "--insecure-bind" in COLLECTOR["command"]
    assert all(port.startswith("127.0.0.1:") for port in COLLECTOR["ports"])


def test_what_it_is_built_from_is_there():
    build = COLLECTOR["build"]
    root = (FILE.parent / build["context"]).resolve()
    assert (root / "pyproject.toml").is_file()
    dockerfile = (root / build["dockerfile"]).read_text()
    assert 'ENTRYPOINT ["kvflags"]' in dockerfile
    assert "USER 10001" in dockerfile
