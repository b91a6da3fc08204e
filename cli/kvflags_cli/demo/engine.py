# SPDX-License-Identifier: Apache-2.0
"""One vLLM engine in a process of its own, and the handle its owner holds.

The owner talks to it over a local connection: jobs in, results out, many at a time. The engine is a plain vLLM engine
with `kv_connector="NixlConnector"`; whatever kvflags does to it comes from its plugin and the environment, as for any
user.

    python -m kvflags_cli.demo.engine ADDRESS OPTIONS      # what `Engine` starts
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

__all__ = ["Engine", "EngineError", "Result"]

# Request id, prompt, kv_transfer_params, tokens to generate.
_Job = tuple[str, list[int], dict[str, Any] | None, int]

_AUTH = "KVFLAGS_DEMO_AUTH"
# Set for every engine: no downloads, NIXL over local UCX, a cache of 1 GiB.
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "UCX_TLS": "tcp,shm,self",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
}


class EngineError(RuntimeError):
    """The engine's process ended, or did not get ready in time. The message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one request came to. `finish_reason` is vLLM's: `length`, or `error` for a failed transfer.

    tokens: generated ids; logprobs: one float for each; params: what a decode engine needs to fetch this prefill's KV;
    seconds: until the last token; gaps: seconds between tokens, one fewer than tokens.
    """

    finish_reason: str | None
    tokens: list[int]
    logprobs: list[float]
    params: dict[str, Any] | None
    seconds: float
    gaps: list[float]


@dataclass
class Engine:
    """A running engine's handle. `role` is vLLM's kv_role; `options` go to vLLM's engine arguments as they are."""

    model: Path
    role: str
    port: int
    log: Path
    environ: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)

    def start(self) -> Engine:
        """Start the process and return at once; `wait_ready` waits for the engine."""
        key = secrets.token_bytes(16)
        self._listener = Listener(("127.0.0.1", 0), authkey=key)
        self._pending: dict[str, Future[Result]] = {}
        self._ready = threading.Event()
        self._connection: Connection[Any, Any] | None = None
        options = {"model": str(self.model), "role": self.role, **self.options}
        place = {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(self.port), "VLLM_CPU_OMP_THREADS_BIND": _core(self.role)}
        environ = {**os.environ, **_ENVIRONMENT, **place, **self.environ, _AUTH: key.hex()}
        command = [sys.executable, "-m", "kvflags_cli.demo.engine", str(self._listener.address[1]), json.dumps(options)]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.started = time.monotonic()
        with self.log.open("w") as log:
            # A session of its own: vLLM's engine core and workers are then ended with it, whatever state they are in.
            self._process = subprocess.Popen(  # noqa: S603
                command, env=environ, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def wait_ready(self, timeout: float = 300) -> Engine:
        """Block until the engine serves.

        Raises:
            EngineError: its process ended, or `timeout` seconds passed.
        """
        until = time.monotonic() + timeout
        while not self._ready.wait(0.1):
            if self._process.poll() is not None or time.monotonic() > until:
                raise EngineError(f"the {self.role} engine did not start\n{self.log_tail()}")
        return self

    def submit(
        self, request_id: str, tokens: list[int], *, params: dict[str, Any] | None, length: int
    ) -> Future[Result]:
        """Send one request; the future fails with EngineError if the engine ends first."""
        future: Future[Result] = Future()
        self._pending[request_id] = future
        if self._connection is None or self._process.poll() is not None:
            self._fail(EngineError(f"the {self.role} engine is not running\n{self.log_tail()}"))
            return future
        self._connection.send((request_id, tokens, params, length))
        return future

    def stop(self, timeout: float = 30) -> None:
        """Ask the engine to shut down cleanly; kill it when it takes longer."""
        if self._connection is None:
            timeout = 0  # it is still starting, and would not hear of it
        elif self._process.poll() is None:
            self._connection.send(None)
        self._wait(timeout)

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        self._wait(0)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of the engine's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _wait(self, timeout: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.close()

    def _read(self) -> None:
        """Thread: accept the engine's connection, then settle futures until it closes."""
        try:
            with self._listener.accept() as connection:
                self._connection = connection
                self._ready.set()
                while True:
                    request_id, result = connection.recv()
                    self._pending.pop(request_id).set_result(Result(*result))
        except (EOFError, OSError):
            self._fail(EngineError(f"the {self.role} engine ended"))

    def _fail(self, error: EngineError) -> None:
        for future in [self._pending.pop(key) for key in list(self._pending)]:
            future.set_exception(error)


def _core(role: str) -> str:
    """One core for each role. With a thread on every core, up to six engines' OpenMP threads spin against each other.

    (vLLM drops OMP_NUM_THREADS unless it binds threads itself.)
    """
    allowed = sorted(os.sched_getaffinity(0))
    return str(allowed[0 if role == "kv_producer" else -1])


async def _serve(connection: Connection[Any, Any], engine: Any) -> None:  # noqa: ANN401 (vLLM ships no types)
    running: set[asyncio.Task[None]] = set()
    while (job := await asyncio.to_thread(_receive, connection)) is not None:
        task = asyncio.create_task(_answer(connection, engine, job))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    engine.shutdown()


def _receive(connection: Connection[Any, Any]) -> Any:  # noqa: ANN401 (what the owner sent: a job, or None to stop)
    try:
        return connection.recv()
    except EOFError:
        return None


async def _answer(connection: Connection[Any, Any], engine: Any, job: _Job) -> None:  # noqa: ANN401
    from vllm import SamplingParams  # noqa: PLC0415 (only in the engine's own process)

    request_id, tokens, params, length = job
    extra = {"kv_transfer_params": params} if params else None
    sampling = SamplingParams(
        max_tokens=length, temperature=0, detokenize=False, ignore_eos=True, logprobs=1, extra_args=extra
    )
    times = [time.perf_counter()]
    outputs = []
    async for output in engine.generate({"prompt_token_ids": tokens}, sampling, request_id):
        outputs.append(output)
        times.append(time.perf_counter())
    done = outputs[-1].outputs[0]
    logprobs = [next(iter(step.values())).logprob for step in done.logprobs or []]
    gaps = [later - earlier for earlier, later in pairwise(times[1:])]
    result = (
        done.finish_reason,
        list(done.token_ids),
        logprobs,
        outputs[-1].kv_transfer_params,
        times[-1] - times[0],
        gaps,
    )
    connection.send((request_id, result))


def _main() -> None:
    port, options = int(sys.argv[1]), json.loads(sys.argv[2])
    from vllm.config import KVTransferConfig  # noqa: PLC0415
    from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415

    transfer = KVTransferConfig(
        kv_connector=options.pop("connector", "NixlConnector"),
        kv_connector_module_path=options.pop("module_path", None),
        kv_role=options.pop("role"),
        kv_buffer_device="cpu",
        kv_connector_extra_config=options.pop("extra_config", {}),
    )
    # float32: a CPU without bfloat16 instructions prefills six times slower in bfloat16 (1.4 s a request, not 0.25 s).
    arguments = {
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "max_model_len": 2048,
        "dtype": "float32",
        "max_num_seqs": 8,
        "seed": 0,
        "enable_prefix_caching": False,
        # A small pool: freed blocks are handed out again in another order, as on an engine that has served for a while.
        "num_gpu_blocks_override": 128,
        **options,
    }
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(kv_transfer_config=transfer, **arguments))
    with Client(("127.0.0.1", port), authkey=bytes.fromhex(os.environ.pop(_AUTH))) as connection:
        asyncio.run(_serve(connection, engine))


if __name__ == "__main__":
    _main()
