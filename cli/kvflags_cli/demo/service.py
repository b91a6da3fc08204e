# SPDX-License-Identifier: Apache-2.0
"""A collector of its own, in a process of its own: what `kvflags serve` starts, with its log in a file."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx

from kvflags import local_token
from kvflags.errors import OperatorError
from kvflags_cli.client import Client
from kvflags_cli.settings import own

__all__ = ["Service"]


class Service:
    """`start` returns once the collector is ready; `client()` talks to it; `url` is what engines are given.

    A heartbeat of 5 s makes leases of 15: on two cores that start engines, a worker can be silent for several seconds.
    """

    def __init__(
        self,
        database: Path,
        log: Path,
        *,
        port: int,
        heartbeat: str = "5s",
        start_lease: str = "5m",
        hub: bool = False,
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.token_file = local_token.place(port)
        self._log = log
        self._options = ["--db", f"sqlite:///{database}", "--port", str(port)]
        self._options += ["--heartbeat", heartbeat, "--start-lease", start_lease]
        self._options += ["--hub"] if hub else []

    def start(self, timeout: float = 30) -> Service:
        """Start it and wait until it is ready.

        Raises:
            OperatorError: it ended (a port in use, say) or was not ready in time; the message is its own.
        """
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a") as log:
            command = [sys.executable, "-m", "kvflags_cli", "serve", *self._options]
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603
        until = time.monotonic() + timeout
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > until:
                said = self._log.read_text(errors="replace").strip().splitlines()[-3:]
                raise OperatorError("the collector did not start: " + " ".join(said), hint=f"its log is {self._log}")
            time.sleep(0.1)
        return self

    def client(self) -> Client:
        """A client of the API, for one `with`."""
        return Client(own(self.url, "the demo"))

    def stop(self) -> None:
        """Drain and end; kill it after 15 s. The admin's token that it left opens nothing else, and goes too."""
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()
        if self.token_file:
            self.token_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        """Block until it ends by itself."""
        self._process.wait()

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=1, trust_env=False).is_success
        except httpx.HTTPError:
            return False
