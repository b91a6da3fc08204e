# SPDX-License-Identifier: Apache-2.0
"""The outermost layer of the application: whoever may not ask is answered before a byte of the body is read."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kvflags_collector.access.actor import acting
from kvflags_collector.access.keyring import Denied, Identity, Keyring
from kvflags_collector.access.rules import Rule, rule_for
from kvflags_collector.access.scopes import Scope as TokenScope
from kvflags_collector.access.sessions import COOKIE, Sessions
from kvflags_collector.api.errors import envelope
from kvflags_collector.ingest.http import refuse
from kvflags_collector.ingest.limits import Refused
from kvflags_collector.settings import is_loopback

__all__ = ["Guard"]


class Guard:
    """ASGI middleware: asks the keyring for what `access.rules` says is needed, and says who is acting.

    `on_page`: what a browser is shown instead of a page that it may not see.
    """

    def __init__(
        self, app: ASGIApp, keyring: Keyring, sessions: Sessions, on_page: Callable[[Denied, Request], Response]
    ) -> None:
        self._app, self._keyring, self._sessions, self._on_page = app, keyring, sessions, on_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        rule = rule_for(scope["method"], scope["path"])
        request = Request(scope)
        try:
            found = self._admit(rule, request)
        except Denied as denied:
            shown = rule is not None and rule.page and "text/html" in request.headers.get("accept", "")
            answer = self._on_page(denied, request) if shown else _answer(denied, request)
            return await answer(scope, receive, send)
        scope["kvflags.identity"] = found
        token = acting.set(found.name if found else None)
        try:
            await self._app(scope, receive, send)
        finally:
            acting.reset(token)
        return None

    def _admit(self, rule: Rule | None, request: Request) -> Identity | None:
        """Whose token or session it is, None without one. Raises Denied."""
        needed = rule.needed if rule else TokenScope.ADMIN
        authorization = request.headers.get("authorization")
        found, sent = self._keyring.identify(authorization), bool(authorization)
        if rule is not None and rule.page and not sent:
            cookie = request.cookies.get(COOKIE)
            found, sent = self._sessions.identity(cookie), bool(cookie)
        if needed is None:
            return found
        found = self._keyring.permit(found, needed, sent=sent)
        if found is None and not _on_this_machine(request.headers.get("host", "")):
            raise Denied(
                403,
                "without a token this collector answers under the names of this machine only",
                "ask 127.0.0.1, or send a token: behind a proxy, start the collector with --require-tokens",
                'Bearer realm="kvflags"',
            )
        return found


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
