# SPDX-License-Identifier: Apache-2.0
"""The export thread: takes records, builds spans, sends them, and never gets in the engine's way.

The only thread that imports the OpenTelemetry SDK. It never raises into the host, and a shutdown takes at most 1 s.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kvflags.telemetry.answer import Answer, Outcome, Way

if TYPE_CHECKING:
    from kvflags.telemetry.labels import Labels
    from kvflags.telemetry.records import Records, Transfer
    from kvflags.telemetry.transfers import Spans

__all__ = ["Exporter"]

# Building and encoding hold the GIL for about 150 us a span. After each chunk the thread rests for as long as it
# worked, so that a loop that needs the GIL loses at most half of it, 1.2 ms at a time; 3,000 spans a second still pass.
# With 32 in a chunk and a bare yield the loop's 99th percentile rose from 1.4 ms to 5 and more (benchmarks/engine).
_CHUNK = 8
_BATCH = 512
_FLUSH_S = 0.5
_SHUTDOWN_S = 1.0
_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 30.0

_log = logging.getLogger("vllm.kvflags")


class Exporter:
    """One daemon thread for one worker, started once its caches are registered.

    labels: asked before each batch, since a decision that comes back late changes them. on_flush: called on the thread
    after each pass, with the number of spans that are lost so far.
    """

    def __init__(
        self,
        records: Records,
        labels: Callable[[], Labels],
        url: str,
        token: str | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
        on_flush: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._records = records
        self._labels = labels
        self._address = (url, token)
        self._environ = environ
        self._on_flush = on_flush
        self._batch = _Batch(_setting(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", _BATCH, most=_BATCH))
        self._flush_s = _setting(environ, "OTEL_BSP_SCHEDULE_DELAY", 500, most=60_000) / 1000
        self._lost = 0
        self._retry_s = 0.0
        self._not_before = 0.0
        self._wire: Way | None = None
        self._spans: tuple[Labels, Spans] | None = None
        self._stop = threading.Event()
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._run, name="kvflags-export", daemon=True)

    @property
    def dropped(self) -> int:
        """Spans that never reached, or never will reach, the collector."""
        return self._lost + self._records.dropped

    def start(self) -> None:
        """Call once, in the process that emits: threads do not survive a fork."""
        self._thread.start()

    def shutdown(self, timeout_s: float = _SHUTDOWN_S) -> None:
        """Send what is left, for at most that long. What is then left is lost, and said so in the log."""
        self._deadline = time.monotonic() + timeout_s
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if left := self._batch.spans + len(self._records):
            _log.warning("kvflags: %d transfers could not be sent before the end", left)

    def _run(self) -> None:
        while not self._stop.wait(self._flush_s):
            self._pass()
        self._pass()
        if self._wire is not None:
            self._wire.close()

    def _pass(self) -> None:
        try:
            self._drain()
            if self._wire is not None:
                self._wire.rest()
            self._on_flush(self.dropped)
        except Exception:  # noqa: BLE001 (ours alone: the engine does not depend on this thread)
            _log.exception("kvflags: a batch of transfers could not be exported")
            self._lost += self._batch.clear()

    def _drain(self) -> None:
        # During a back-off nothing is built: records are the buffer, being a seventh of the size.
        if time.monotonic() < self._not_before and not self._stop.is_set():
            return
        while self._fill() and time.monotonic() < self._deadline:
            if not self._settle(self._send()):
                return

    def _fill(self) -> bool:
        """Bring the batch up to size, unless it was tried before: then it is sent again unchanged."""
        if not self._batch.tried:
            while (room := self._batch.room()) and (transfers := self._records.take(min(_CHUNK, room))):
                started = time.thread_time()
                self._batch.add(*self._encode(transfers))
                self._stop.wait(time.thread_time() - started)
        return bool(self._batch.spans)

    def _encode(self, transfers: list[Transfer]) -> tuple[bytes, int]:
        from kvflags.telemetry.transfers import Spans, encode  # noqa: PLC0415 (0.2 s: not on the engine's threads)

        self._lost += len(transfers)  # until they are in the batch: whatever goes wrong here, they are accounted for
        labels = self._labels()
        if self._spans is None or self._spans[0] is not labels:
            self._spans = (labels, Spans(labels, self._environ))
        spans = self._spans[1].build(transfers)
        body = encode(spans) if spans else b""
        self._lost -= len(transfers)
        return body, len(spans)

    def _send(self) -> Answer:
        from kvflags.telemetry.wire import way  # noqa: PLC0415

        if self._wire is None:
            self._wire = way(*self._address, self._environ)
        if self._stop.is_set():
            self._wire.timeout_s = max(0.05, self._deadline - time.monotonic())
        return self._wire.send(self._batch.body())

    def _settle(self, answer: Answer) -> bool:
        """Whether the batch is done with, either way."""
        if answer.outcome is Outcome.LATER:
            self._back_off(answer.says)
            return False
        self._retry_s = 0.0
        spans = self._batch.clear()
        self._lost += spans if answer.outcome is Outcome.REFUSED else answer.rejected
        if answer.outcome is Outcome.REFUSED:
            _log.warning("kvflags: the collector refused %d spans: %s", spans, answer.says)
        return True

    def _back_off(self, says: str) -> None:
        self._batch.tried = True
        if not self._retry_s:
            _log.warning("kvflags: the collector does not take spans now (%s); they are kept and sent later", says)
        self._retry_s = min(max(2 * self._retry_s, _FIRST_RETRY_S), _LAST_RETRY_S)
        # Jitter, so that a thousand engines do not come back in the same second.
        self._not_before = time.monotonic() + self._retry_s * random.uniform(0.8, 1.2)  # noqa: S311


class _Batch:
    """Encoded chunks on their way. `tried`: sent once already, so it stays as it is and a repeat is known as one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._chunks: list[bytes] = []
        self.spans = 0
        self.tried = False

    def room(self) -> int:
        return max(0, self._most - self.spans)

    def add(self, chunk: bytes, spans: int) -> None:
        self._chunks.append(chunk)
        self.spans += spans

    def body(self) -> bytes:
        return b"".join(self._chunks)

    def clear(self) -> int:
        spans, self.spans = self.spans, 0
        self._chunks = []
        self.tried = False
        return spans


def _setting(environ: Mapping[str, str], name: str, default: int, *, most: int) -> int:
    text = environ.get(name, "")
    return min(int(text), most) if text.isdigit() and int(text) > 0 else default
