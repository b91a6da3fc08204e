# SPDX-License-Identifier: Apache-2.0
"""A deployment of one prefill and one decode engine, and requests that cross from one to the other."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvflags_cli.canary.completions import PREFILL
from kvflags_cli.demo.engine import Engine, Result

__all__ = ["Pair", "free_port"]

# As many as the engines batch: fewer would leave the block pool unfragmented, more would only queue.
_IN_FLIGHT = 8


def free_port() -> int:
    """A port nobody listens on now, out of those that no system hands to outgoing connections (from 32768 on).

    An engine binds it many seconds later, and has found one of those taken by then.
    """
    while True:
        # Not by `random`: who seeds it anew would be given the port of an engine that has yet to bind it.
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@dataclass
class Pair:
    """One generation of one deployment. `environ` goes to both engines, the other two environments to one each."""

    name: str
    generation: str
    model: Path
    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    prefill_environ: Mapping[str, str] = field(default_factory=dict)
    decode_environ: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def start(self) -> Pair:
        """Start both engines and return at once."""
        self.prefill = self._engine("prefill", "kv_producer", self.prefill_environ).start()
        self.decode = self._engine("decode", "kv_consumer", self.decode_environ).start()
        return self

    def wait_ready(self) -> Pair:
        """Block until both serve; see `Engine.wait_ready`."""
        self.prefill.wait_ready()
        self.decode.wait_ready()
        return self

    def request(self, request_id: str, tokens: list[int], length: int = 16) -> Result:
        """Prefill on one engine, decode on the other: one KV transfer."""
        prefilled = self.prefill.submit(request_id, tokens, params=PREFILL, length=1).result(120)
        return self.decode.submit(request_id, tokens, params=prefilled.params, length=length).result(120)

    def local(self, request_id: str, tokens: list[int], length: int = 16) -> Result:
        """The same request wholly on the decode engine: what the transferred one must equal."""
        return self.decode.submit(request_id, tokens, params=None, length=length).result(120)

    def send(self, prompts: Mapping[str, list[int]], length: int = 16) -> dict[str, Result]:
        """Many requests, several in flight. Lengths differ and ends cross, which fragments the block pools."""
        with ThreadPoolExecutor(_IN_FLIGHT) as pool:
            futures: dict[str, Future[Result]] = {
                request_id: pool.submit(self.request, request_id, tokens, length)
                for request_id, tokens in prompts.items()
            }
        return {request_id: future.result() for request_id, future in futures.items()}

    def stop(self) -> None:
        """Shut both down cleanly, at the same time: each takes about 7 s."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(Engine.stop, (self.decode, self.prefill)))

    def _engine(self, role: str, kv_role: str, own: Mapping[str, str]) -> Engine:
        short = f"{self.name.rpartition('/')[2]}-{self.generation}-{role}"
        identity = {
            "KVFLAGS_DEPLOYMENT": self.name,
            "KVFLAGS_GENERATION": self.generation,
            # What an engine last heard is a host's memory: engines that stand for different hosts must not share it.
            "KVFLAGS_STATE_DIR": str(self.folder / "state" / short),
        }
        return Engine(
            model=self.model,
            role=kv_role,
            port=free_port(),
            log=self.folder / "logs" / f"{short}.log",
            environ={**identity, **self.environ, **own},
            options=self.options,
        )
