# SPDX-License-Identifier: Apache-2.0
"""How much a client may send: the bounded reading and inflating of a request body, before anybody looks inside.

Every refusal is a `Refused` with the HTTP status that OTLP/HTTP asks for.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kvflags.errors import KvflagsError

__all__ = ["Budget", "Held", "Limits", "Refused", "inflate", "read_body", "timely"]

MIB = 1 << 20
_HOUR_NS = 3600 * 10**9
# The largest export of an SDK with its defaults, 512 spans, is a quarter of that.
_SMALL = MIB


class Refused(KvflagsError):
    """A request that is answered without being stored. `status` is the HTTP status; 503 alone is retried by clients."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds per request and in all. Sizes in bytes, times in seconds.

    body: the specification's recommended 64 MiB, on the wire and again after inflation. ratio: spans compress 4:1 to
    50:1, a bomb 1000:1; looked at only beyond 1 MiB, where it starts to matter. in_flight: everything between its first
    byte and its commit; two of the largest bodies. read_s: a body that trickles in for longer is given up. stall_s:
    once a request waits for its commit for longer, others are sent away unread: clients give up after 10 s in all.
    """

    body: int = 64 * MIB
    ratio: int = 200
    in_flight: int = 128 * MIB
    read_s: float = 30.0
    stall_s: float = 5.0


class Budget:
    """Bytes in flight, over all requests. Used on the event loop only, so it needs no lock."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @contextmanager
    def hold(self) -> Iterator[Held]:
        """A share of the budget, given back whole at the end."""
        held = Held(self)
        try:
            yield held
        finally:
            self.used -= held.size


class Held:
    """What one request holds of the budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.size = 0

    def grow(self, size: int) -> None:
        """Count these bytes too; raises as `check` does."""
        self.check(size)
        self.add(size)

    def check(self, size: int) -> None:
        """See whether so many more fit. What is large leaves a quarter to what is not, so that no few can take it all.

        Raises:
            Refused: 503, where they would pass the limit; whoever is alone is always let in.
        """
        limit = self._budget.limit
        allowed = limit if self.size + size <= _SMALL else limit * 3 // 4
        if self._budget.used > self.size and self._budget.used + size > allowed:
            raise Refused(503, "the collector is behind with storing: try again")

    def add(self, size: int) -> None:
        """Count bytes that are there already, whatever the limit says."""
        self.size += size
        self._budget.used += size


async def read_body(chunks: AsyncIterable[bytes], declared: int, limits: Limits, held: Held) -> bytes:
    """The whole body, `declared` being its Content-Length or 0. Runs on the event loop.

    Raises:
        Refused: 413 above the limit, 408 when it takes too long, 503 when too much is in flight already.
    """
    _within(declared, limits)
    # Looked at, not counted: only what has arrived takes memory, and announcing much must not shut others out.
    held.check(declared)
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.read_s):
            async for chunk in chunks:
                size += len(chunk)
                _within(size, limits)
                held.grow(len(chunk))
                parts.append(chunk)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {limits.read_s:g} s") from None
    return b"".join(parts)


def inflate(body: bytes, limits: Limits) -> bytes:
    """A gzip body, inflated to at most the limit and not a byte more.

    Raises:
        Refused: 400 where it is no gzip, 413 where it grows beyond the limit or the ratio.
    """
    allowed = min(limits.body, max(MIB, len(body) * limits.ratio))
    parts: list[bytes] = []
    size = 0
    for part in _inflated(body, min(allowed + 1, 4 * MIB)):
        size += len(part)
        if size > allowed:
            # The error holds this frame until it is answered: eight bombs at once would keep 512 MiB by that alone.
            parts.clear()
            raise Refused(413, f"the body inflates to more than {allowed} bytes")
        parts.append(part)
    return b"".join(parts)


def _inflated(rest: bytes, step: int) -> Iterator[bytes]:
    """The members of a gzip body, inflated in parts of at most `step` bytes."""
    # RFC 1952 allows several members; each copies what is left of the body, so their number is bounded too.
    for _ in range(8):
        inflater = zlib.decompressobj(wbits=31)
        while not inflater.eof:
            try:
                part = inflater.decompress(rest, step)
            except zlib.error as problem:
                raise Refused(400, f"the body is not gzip: {problem}") from None
            rest = inflater.unconsumed_tail
            if not part and not inflater.eof:
                raise Refused(400, "the gzip body ends before its end mark")
            yield part
        rest = inflater.unused_data
        if not rest:
            return
    raise Refused(400, "the gzip body has more than 8 members")


def timely(at_ns: int, now_ns: int) -> bool:
    """Whether something may have happened then: a clock far off would make partitions without end."""
    return now_ns - 7 * 24 * _HOUR_NS <= at_ns <= now_ns + _HOUR_NS


def _within(size: int, limits: Limits) -> None:
    if size > limits.body:
        raise Refused(413, f"the body is larger than {limits.body} bytes: send less in one request")
