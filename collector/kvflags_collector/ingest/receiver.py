# SPDX-License-Identifier: Apache-2.0
"""What both transports share: one budget of bytes, and where each signal goes. On the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from google.protobuf.message import Message

from kvflags_collector.ingest import events, outcomes
from kvflags_collector.ingest.from_json import from_json
from kvflags_collector.ingest.instruments import Instruments
from kvflags_collector.ingest.keeper import Keeper
from kvflags_collector.ingest.limits import MIB, Budget, Held, Limits, Refused, inflate
from kvflags_collector.ingest.signals import LOGS, METRICS, TRACES, Signal
from kvflags_collector.ingest.spans.decode import Decoded, decode
from kvflags_collector.ingest.writer import Writer

__all__ = ["Receiver"]

log = logging.getLogger(__name__)

# Larger ones are decoded aside. Some 10 ms of protobuf; a gzip of less that inflates to the utmost takes 0.3 s.
_QUICK = MIB
# How many bytes of spans are one of their gzip.
_DENSITY = 16


class _Taken(Protocol):
    """size: bytes it took on the wire, inflated. rejected: reason -> how many."""

    size: int
    rejected: Counter[str]


@dataclass(frozen=True, slots=True)
class _Way:
    """decode(body, now in ns) runs in any thread; store(make) gives what `make` made once it is committed."""

    decode: Callable[[bytes, int], _Taken]
    store: Callable[[Callable[[], Any]], Awaitable[_Taken]]


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
        # For what is large alone: 64 MiB take seconds, in which the thread that stores must not stand still.
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
        way = self._ways[signal.name]
        try:
            decode = partial(self._decode, signal, way, body, zipped, as_json)
            if len(body) * (_DENSITY if zipped else 1) > _QUICK:
                decoded = await asyncio.get_running_loop().run_in_executor(self._decoders, decode)
                held.add(max(0, decoded.size - len(body)))
                decode = partial(_itself, decoded)
            stored = await self._store(signal, way, decode)
        except Refused:
            raise
        except Exception as fault:
            # Said in the way of OTLP too: a client that cannot read an answer may send the same again for ever.
            log.exception("could not take a request of %s", signal.name)
            raise Refused(500, "the collector failed: see its log") from fault
        return signal.answer(stored.rejected)

    async def _store(self, signal: Signal, way: _Way, decode: Callable[[], _Taken]) -> _Taken:
        ticket, began = object(), time.monotonic()
        self._waiting[ticket] = began
        try:
            stored = await way.store(decode)
        finally:
            del self._waiting[ticket]
        spans = 0
        if isinstance(stored, Decoded):
            spans = len(stored.rows)
            if stored.took:
                self.instruments.durations.add(stored.took, self._clock() / 1e9)
        self.instruments.acknowledged(signal.name, spans, stored.rejected, time.monotonic() - began)
        return stored

    def _decode(self, signal: Signal, way: _Way, body: bytes, zipped: bool, as_json: bool) -> _Taken:
        plain = inflate(body, self.limits) if zipped else body
        return way.decode(from_json(plain, signal.request) if as_json else plain, self._clock())


def _itself(decoded: _Taken) -> _Taken:
    return decoded
