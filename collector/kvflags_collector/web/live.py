# SPDX-License-Identifier: Apache-2.0
"""Server-sent events: a page that is open learns that it is out of date, and fetches itself again.

An event holds the page's version and no content: whoever listens needs to be let in again to read it, and a version
that is known already (after a lost connection, or a restart of ours) costs nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from kvflags.errors import ErrorCode, KvflagsError
from kvflags_collector.api.errors import status_of
from kvflags_collector.web.answers import HEADERS, error

__all__ = ["Live"]

# Each connection costs a socket and some 20 kB; a browser that gets none looks again by itself, less and less often.
_MOST = 200
_EVERY_S = 2.0
# Proxies close what is silent for a minute.
_SILENT_S = 15.0
_FULL = {"code": ErrorCode.OVERLOADED.value, "message": "too many pages listen", "hint": "ask again in a minute"}


@dataclass(slots=True)
class _Watched:
    """A page that somebody listens for; `said`: the last event, as of `at_s`."""

    readers: int = 0
    at_s: float = float("-inf")
    said: str = ""
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class Live:
    """All open pages of one collector: `most` connections, each page looked at every `every_s` for all who read it."""

    def __init__(self, *, most: int = _MOST, every_s: float = _EVERY_S) -> None:
        self._most, self._every_s = most, every_s
        self._watched: dict[str, _Watched] = {}
        self._closed = asyncio.Event()

    @property
    def readers(self) -> int:
        """How many connections there are."""
        return sum(watched.readers for watched in self._watched.values())

    def close(self) -> None:
        """End every connection, and take no other: a server that is told to stop does not wait for open pages. On the
        loop that serves."""
        self._closed.set()

    def route(self, path: str, version: Callable[[Request], str]) -> Route:
        """`GET path`. `version`: of the page that a request listens for; it may block, and raises what the page would.

        Nobody asks for it twice within half of `every_s`, however many listen.
        """

        async def listen(request: Request) -> Response:
            if self._closed.is_set() or self.readers >= self._most:
                return JSONResponse({"error": _FULL}, 503, HEADERS | {"Retry-After": "60"})
            with ExitStack() as leaving:
                watched = self._enter(f"{request.url.path}?{request.url.query}", leaving)
                ask = partial(version, request)
                try:
                    first = await self._said(watched, ask)
                except KvflagsError as problem:
                    return JSONResponse({"error": error(problem)}, status_of(problem), HEADERS)
                return _Stream(self._stream(watched, first, ask), leaving.pop_all())

        return Route(path, listen)

    def _enter(self, place: str, leaving: ExitStack) -> _Watched:
        watched = self._watched.setdefault(place, _Watched())
        watched.readers += 1

        def leave() -> None:
            watched.readers -= 1
            if not watched.readers:
                del self._watched[place]

        leaving.callback(leave)
        return watched

    async def _stream(self, watched: _Watched, said: str, ask: Callable[[], str]) -> AsyncIterator[str]:
        yield f"retry: 2000\n{said}"
        silent_s = 0.0
        # The database is away, or the flag archived: the browser asks again, and is told then.
        with suppress(KvflagsError):
            while not await self._closes():
                before, said = said, await self._said(watched, ask)
                silent_s += self._every_s
                if said != before:
                    yield said
                elif silent_s >= _SILENT_S:
                    yield ": here\n\n"
                else:
                    continue
                silent_s = 0.0

    async def _closes(self) -> bool:
        """Wait for the next look; whether we were closed instead."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._every_s):
                await self._closed.wait()
        return self._closed.is_set()

    async def _said(self, watched: _Watched, ask: Callable[[], str]) -> str:
        """One asks, in a thread; the others wait for it, or have what was said just now."""
        async with watched.asking:
            if time.monotonic() - watched.at_s >= self._every_s / 2:
                watched.said = f"event: page\ndata: {await run_in_threadpool(ask)}\n\n"
                watched.at_s = time.monotonic()
            return watched.said


class _Stream(StreamingResponse):
    """`leaving` is closed when it ends, however it does: also where the reader is gone before the first byte."""

    def __init__(self, events: AsyncIterator[str], leaving: ExitStack) -> None:
        # nginx holds events back without the header.
        super().__init__(events, media_type="text/event-stream", headers=HEADERS | {"X-Accel-Buffering": "no"})
        self._leaving = leaving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._leaving:
            await super().__call__(scope, receive, send)
