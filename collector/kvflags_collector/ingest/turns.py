# SPDX-License-Identifier: Apache-2.0
"""A few at a time, and who takes long makes room once others wait. For the event loop only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Turns"]


class Turns:
    """`places` at once. While anybody waits for one, each has `patience_s` from its beginning; else as long as it asks.

    So slow ones, however many, hold up the others for no longer than their number / places * patience.
    """

    def __init__(self, places: int, patience_s: float) -> None:
        self._free = asyncio.Semaphore(places)
        self._patience_s = patience_s
        self._waiting = 0
        self._taken: dict[asyncio.Timeout, float] = {}

    @asynccontextmanager
    async def turn(self, limit_s: float) -> AsyncIterator[None]:
        """A place for the time of the context. TimeoutError inside it when its time is over."""
        await self._take()
        began = asyncio.get_running_loop().time()
        limit = asyncio.timeout(min(limit_s, self._patience_s) if self._waiting else limit_s)
        try:
            async with limit:
                self._taken[limit] = began
                yield
        finally:
            del self._taken[limit]
            self._free.release()

    async def _take(self) -> None:
        self._waiting += 1
        try:
            if self._free.locked():
                self._hurry()
            await self._free.acquire()
        finally:
            self._waiting -= 1

    def _hurry(self) -> None:
        now = asyncio.get_running_loop().time()
        for limit, began in self._taken.items():
            due = max(now, began + self._patience_s)
            # One whose time is over is about to go, and can be given no other.
            if not limit.expired() and ((when := limit.when()) is None or when > due):
                limit.reschedule(due)
