# SPDX-License-Identifier: Apache-2.0
"""What both transports share: one budget of bytes, two decoders, and where each signal goes. On the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.message import Message

from kvflags_collector.ingest import events, outcomes
from kvflags_collector.ingest.from_json import from_json
from kvflags_collector.ingest.instruments import Instruments
from kvflags_collector.ingest.keeper import Keeper
from kvflags_collector.ingest.limits import Budget, Held, Limits, Refused, inflate
from kvflags_collector.ingest.signals import LOGS, METRICS, TRACES, Signal
from kvflags_collector.ingest.spans.decode import Decoded, decode
from kvflags_collector.ingest.writer import Writer

__all__ = ["Receiver"]

log = logging.getLogger(__name__)


class _Taken(Protocol):
    """size: bytes it took on the wire, inflated. rejected: reason -> how many."""

    size: int
    rejected: Counter[str]


@dataclass(frozen=True, slots=True)
class _Way:
    """decode(body, now in ns) runs in a decoder's thread; store(decoded) returns once it is committed."""

    decode: Callable[[bytes, int], _Taken]
    store: Callable[[Any], Awaitable[None]]


class Receiver:
    """Takes in requests of any signal. `clock` gives the time in ns since 1970. Used by the server's loop only."""

    def __init__(
        self, writer: Writer, keeper: Keeper, limits: Limits | None = None, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self.limits = limits or Limits()
        self.budget = Budget(self.limits.in_flight)
        self.instruments = Instruments()
        self._clock = clock
        self._ways = {
            TRACES.name: _Way(decode, writer.submit),
            METRICS.name: _Way(outcomes.decode, keeper.submit),
            LOGS.name: _Way(events.decode, keeper.submit),
        }
        # Never on the loop: a body of 64 MiB takes seconds. Two, so that small ones get past such a one.
        self._decoders = ThreadPoolExecutor(2, thread_name_prefix="kvflags-decode")
        # Since when each request waits for its commit, the one that waits longest first: dictionaries keep their order.
        self._waiting: dict[object, float] = {}

    def admit(self) -> None:
        """Asked before a request's body is read.

        Raises:
            Refused: 503, where it would only wait: too much is in flight, or nothing was committed for too long.
        """
        if self.budget.used >= self.budget.limit:
            raise Refused(503, "the collector is behind with storing: try again")
        oldest = next(iter(self._waiting.values()), None)
        if oldest is not None and time.monotonic() - oldest > self.limits.stall_s:
            raise Refused(503, "the collector cannot store anything at present: try again")

    async def take(self, signal: Signal, body: bytes, held: Held, *, zipped: bool, as_json: bool = False) -> Message:
        """The response to a body, which `held` counts already; returned after the commit.

        Raises:
            Refused: 400 or 413 for what it holds, 503 where it cannot be stored now, 500 for a fault of ours.
        """
        way, loop = self._ways[signal.name], asyncio.get_running_loop()
        try:
            decoded = await loop.run_in_executor(self._decoders, self._decode, signal, way, body, zipped, as_json)
            held.add(max(0, decoded.size - len(body)))
            await self._store(signal, way, decoded)
        except Refused:
            raise
        except Exception as fault:
            # Said in the way of OTLP too: a client that cannot read an answer may send the same again for ever.
            log.exception("could not take a request of %s", signal.name)
            raise Refused(500, "the collector failed: see its log") from fault
        return signal.answer(decoded.rejected)

    async def _store(self, signal: Signal, way: _Way, decoded: _Taken) -> None:
        ticket, began = object(), time.monotonic()
        self._waiting[ticket] = began
        try:
            await way.store(decoded)
        finally:
            del self._waiting[ticket]
        spans = 0
        if isinstance(decoded, Decoded):
            spans = len(decoded.rows)
            if decoded.took:
                self.instruments.durations.add(decoded.took, self._clock() / 1e9)
        self.instruments.acknowledged(signal.name, spans, decoded.rejected, time.monotonic() - began)

    def _decode(self, signal: Signal, way: _Way, body: bytes, zipped: bool, as_json: bool) -> _Taken:
        plain = inflate(body, self.limits) if zipped else body
        return way.decode(from_json(plain, signal.request) if as_json else plain, self._clock())
