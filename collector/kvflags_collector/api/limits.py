# SPDX-License-Identifier: Apache-2.0
"""What no request may be, whatever it asks: larger than its bound, or about a name that nothing can have."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote_plus

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvflags.errors import ErrorCode, UsageError
from kvflags_collector.api.errors import envelope

__all__ = ["BodyLimit", "PlainNames"]

# A registration is about 1 kB. 64 kB leaves room for every field at its longest.
_MAX_BYTES = 64 * 1024
# Pages of which the query is a view, and no name: `web.asked` takes what is there for what it may have meant.
_TYPED = ("/rollouts/", "/hub")


class BodyLimit:
    """ASGI middleware: answers 413 to a larger body under `prefix`, and passes everything else on.

    Bytes are counted while they arrive: a declared length is not to be believed, and may be absent.
    """

    def __init__(self, app: ASGIApp, prefix: tuple[str, ...] = ("/api/", "/ofrep/", "/rollouts/", "/login")) -> None:
        self._app, self._prefix = app, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(self._prefix):
            return await self._app(scope, receive, send)
        messages: list[Message] = []
        size, more = 0, True
        # Read whole first: the handlers do so anyway, and an answer can still be given when it turns out too large.
        while more:
            message = await receive()
            messages.append(message)
            size += len(message.get("body", b""))
            if size > _MAX_BYTES:
                response = envelope(ErrorCode.INVALID, f"the body is larger than {_MAX_BYTES} bytes", "send less", 413)
                return await response(scope, receive, send)
            more = bool(message.get("more_body")) and message["type"] == "http.request"

        async def replay() -> Message:
            return messages.pop(0) if messages else await receive()

        return await self._app(scope, replay, send)


class PlainNames:
    """ASGI middleware: answers 400 to control characters in a path or query.

    They name nothing of ours, PostgreSQL takes no NUL, and a log of lines is not to be written by those who ask. OFREP
    is left out: it has answers of its own, and looks its names up without the database. So is what people type into a
    page's search field, which the page reads with care. `on_page`: the refusal as a browser is shown it.
    """

    def __init__(self, app: ASGIApp, on_page: Callable[[UsageError], Response]) -> None:
        self._app, self._on_page = app, on_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].startswith("/ofrep/") and not _named(scope).isprintable():
            problem = UsageError("the address has control characters", hint="percent-encode the name that was meant")
            by_browser = "text/html" in Headers(scope=scope).get("accept", "")
            plain = envelope(problem.code, problem.message, problem.hint, 400)
            return await (self._on_page(problem) if by_browser else plain)(scope, receive, send)
        return await self._app(scope, receive, send)


def _named(scope: Scope) -> str:
    """All that an address may name something with."""
    path: str = scope["path"]
    return path if path.startswith(_TYPED) else path + unquote_plus(scope["query_string"].decode("latin-1"))
