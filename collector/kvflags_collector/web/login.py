# SPDX-License-Identifier: Apache-2.0
"""Signing in and out: a token for a cookie, and what a browser is shown where it has neither."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from kvflags_collector.access.keyring import Denied
from kvflags_collector.access.sessions import COOKIE, LASTS_S, Sessions
from kvflags_collector.web.answers import html
from kvflags_collector.web.forms import Fields, handled
from kvflags_collector.web.viewer import NOBODY

__all__ = ["denied", "routes"]

_HINT = (
    "Paste a token with the scope read, or operate to act. An admin makes one with `kvflags tokens create`; on the "
    "collector's own machine one lies ready, and `kvflags config show --origin` says where."
)


def routes(sessions: Sessions) -> list[Route]:
    """The form, what it sends, and the way out."""

    def form(request: Request) -> Response:
        return _form(_local(request.query_params.get("next", "/")), None)

    def sign_in(request: Request, fields: Fields) -> Response:
        where = _local(fields.get("next", "/"))
        cookie = sessions.open(fields.get("token", "").strip())
        if cookie is None:
            return _form(where, "That token is not known here, expired or revoked.", 400)
        answer = RedirectResponse(where, 303)
        answer.set_cookie(
            COOKIE, cookie, max_age=LASTS_S, httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )
        return answer

    def sign_out(_: Request, __: Fields) -> Response:
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE)
        return answer

    return [
        Route("/login", form),
        Route("/login", handled(sign_in), methods=["POST"]),
        Route("/logout", handled(sign_out), methods=["POST"]),
    ]


def denied(problem: Denied, request: Request) -> Response:
    """Instead of a page that this browser may not see: the way in, and then back to it."""
    if request.headers.get("sec-fetch-site") == "cross-site" and COOKIE not in request.cookies:
        # A link from elsewhere comes without a strict cookie; the page asking itself once more brings it along.
        return html("again.html", {}, NOBODY, problem.status)
    where = _asked(request) if request.method == "GET" else "/"
    answer = _form(where, f"{problem.message[0].upper()}{problem.message[1:]}.", problem.status)
    answer.headers["WWW-Authenticate"] = problem.challenge
    return answer


def _form(where: str, wrong: str | None, status: int = 200) -> Response:
    return html("login.html", {"next": where, "wrong": wrong, "hint": _HINT}, NOBODY, status)


def _asked(request: Request) -> str:
    """The address as it was sent: a name in it may hold a question mark."""
    path, query = request.scope["raw_path"].decode("latin-1"), request.url.query
    return f"{path}?{query}" if query else path


def _local(where: str) -> str:
    """A path of ours, whatever was asked for: nobody is sent elsewhere after signing in."""
    ours = where.startswith("/") and not where.startswith(("//", "/\\")) and where.isprintable()
    return where if ours else "/"
