# SPDX-License-Identifier: Apache-2.0
"""The routes of the pages, each with its JSON twin, and of what they load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from kvflags.errors import KvflagsError, NotFound
from kvflags_collector.store.database import Database
from kvflags_collector.times import now_us
from kvflags_collector.web import static
from kvflags_collector.web.asked import asked
from kvflags_collector.web.kept import Kept
from kvflags_collector.web.render import render
from kvflags_collector.web.views import index, rollout

__all__ = ["routes"]

# Nothing from anywhere else, and nothing inline: whatever a span or a comment says, a browser only shows it.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

_Document = dict[str, Any]


def routes(db: Database, kept: Kept, clock: Callable[[], int] = now_us) -> list[Route]:
    """Pages over a database. Handlers are plain functions, so Starlette runs them in threads, off the loop."""
    pages = _Pages(db, kept, clock)
    return [
        *_pair("/", "/index.json", "index.html", pages.index),
        *_pair("/rollouts/{key}", "/rollouts/{key}.json", "rollout.html", pages.rollout),
        *static.routes(),
    ]


class _Pages:
    """The documents, by request."""

    def __init__(self, db: Database, kept: Kept, clock: Callable[[], int]) -> None:
        self._db, self._kept, self._clock = db, kept, clock

    def index(self, _: Request) -> _Document:
        return index.page(self._db, self._kept.evidence, self._clock())

    def rollout(self, request: Request) -> _Document:
        key = request.path_params["key"]
        evidence = self._kept.evidence(key)
        with self._db.read() as conn:
            return rollout.page(conn, key, evidence, asked(request.query_params), self._clock())


def _pair(path: str, twin: str, template: str, build: Callable[[Request], _Document]) -> list[Route]:
    """A page and its twin: the page shows the document and nothing else. The twin first, since `{key}` fits it too."""

    def shown(request: Request) -> Response:
        try:
            document = build(request)
        except KvflagsError as problem:
            return HTMLResponse(render("error.html", {"error": _error(problem)}), _status(problem), _HEADERS)
        return HTMLResponse(render(template, {"page": document}), headers=_HEADERS)

    def bare(request: Request) -> Response:
        try:
            document = build(request)
        except KvflagsError as problem:
            return JSONResponse({"error": _error(problem)}, _status(problem), _HEADERS)
        return JSONResponse(document, headers=_HEADERS)

    return [Route(twin, bare), Route(path, shown)]


def _error(problem: KvflagsError) -> dict[str, str]:
    return {"code": problem.code.value, "message": problem.message, "hint": problem.hint}


def _status(problem: KvflagsError) -> int:
    return 404 if isinstance(problem, NotFound) else 503
