# SPDX-License-Identifier: Apache-2.0
"""Debian's Prometheus as a server of a test's own, which scrapes one collector each second."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from needed import program

from kvflags_cli.demo.pair import free_port

__all__ = ["Prometheus", "prometheus", "until"]

_CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: kvflags
    scrape_timeout: 1s
    static_configs: [{{targets: ["{target}"]}}]
"""
# It is ready within a second; what takes longer is a machine that others use too.
_PATIENCE_S = 120.0


class Prometheus:
    """Asks a running server."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=60, trust_env=False)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression has now; an expression that is none is an error."""
        answer = self._http.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", f"{expression}: {answer}"
        return answer["data"]["result"]

    def exemplars(self, series: str) -> list[dict[str, Any]]:
        """Those of the last hour."""
        now = time.time()
        asked = {"query": series, "start": now - 3600, "end": now + 60}
        return self._http.get("/api/v1/query_exemplars", params=asked).json()["data"]

    def targets(self) -> list[dict[str, Any]]:
        return self._http.get("/api/v1/targets").json()["data"]["activeTargets"]

    def ready(self) -> bool:
        try:
            return self._http.get("/-/ready").is_success
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        self._http.close()


@contextmanager
def prometheus(folder: Path, target: str, rules: Path) -> Iterator[Prometheus]:
    """A server over an empty database in `folder`; `target`: the collector's address."""
    server = program("prometheus", "prometheus")
    config = folder / "prometheus.yml"
    config.write_text(_CONFIG.format(rules=rules, target=urlsplit(target).netloc))
    address = f"127.0.0.1:{free_port()}"
    command = [server, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address={address}", "--enable-feature=exemplar-storage"]
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        asks = Prometheus(f"http://{address}")
        try:
            until(asks.ready, lambda: f"{process.poll()}: {(folder / 'prometheus.log').read_text()}")
            yield asks
        finally:
            asks.close()
            process.terminate()


def until(holds: Callable[[], object], says: Callable[[], object]) -> None:
    """Returns once it holds."""
    end = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < end, says()
        time.sleep(0.2)
