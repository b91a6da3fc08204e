# SPDX-License-Identifier: Apache-2.0
"""The outermost layer of the application: whoever may not ask is answered before a byte of the body is read."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kvflags_collector.access.actor import acting
from kvflags_collector.access.keyring import Denied, Keyring
from kvflags_collector.access.rules import rule_for
from kvflags_collector.access.scopes import Scope as TokenScope
from kvflags_collector.api.errors import envelope
from kvflags_collector.ingest.http import refuse
from kvflags_collector.ingest.limits import Refused
from kvflags_collector.settings import is_loopback

__all__ = ["Guard"]


class Guard:
    """ASGI middleware: asks the keyring for what `access.rules` says is needed, and says who is acting."""

    def __init__(self, app: ASGIApp, keyring: Keyring) -> None:
        self._app, self._keyring = app, keyring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            name = self._admit(scope["method"], scope["path"], Headers(scope=scope))
        except Denied as denied:
            return await _answer(denied, Request(scope))(scope, receive, send)
        token = acting.set(name)
        try:
            await self._app(scope, receive, send)
        finally:
            acting.reset(token)
        return None

    def _admit(self, method: str, path: str, headers: Headers) -> str | None:
        """The name of the token, None without one. Raises Denied."""
        rule = rule_for(method, path)
        needed = rule.needed if rule else TokenScope.ADMIN
        if needed is None:
            return None
        found = self._keyring.check(headers.get("authorization"), needed)
        if found is None and not _on_this_machine(headers.get("host", "")):
            raise Denied(
                403,
                "without a token this collector answers under the names of this machine only",
                "ask 127.0.0.1, or send a token: behind a proxy, start the collector with --require-tokens",
                'Bearer realm="kvflags"',
            )
        return found.name if found else None


def _on_this_machine(host: str) -> bool:
    """What a Host header names. A page that a browser loaded from elsewhere can have its name resolved to 127.0.0.1 and
    then ask us in the user's stead; the header still holds that name."""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return not host or is_loopback(name)


def _answer(denied: Denied, request: Request) -> Response:
    if request.url.path.startswith("/v1/"):
        response = refuse(request, Refused(denied.status, f"{denied.message}; {denied.hint}"))
    else:
        response = envelope(denied.code, denied.message, denied.hint, denied.status)
    response.headers["WWW-Authenticate"] = denied.challenge
    return response
