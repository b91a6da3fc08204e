# SPDX-License-Identifier: Apache-2.0
"""The routes of the pages, each with its JSON twin, and of what they load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kvflags.errors import ErrorCode, KvflagsError, NotFound
from kvflags_collector.access.sessions import Sessions
from kvflags_collector.api.errors import status_of
from kvflags_collector.rollout import flags
from kvflags_collector.store.database import Database
from kvflags_collector.times import now_us
from kvflags_collector.web import acting, feedback, login, static
from kvflags_collector.web.answers import HEADERS, error, failed, html
from kvflags_collector.web.asked import Asked, asked
from kvflags_collector.web.kept import Kept
from kvflags_collector.web.live import Live
from kvflags_collector.web.viewer import viewer_of
from kvflags_collector.web.views import deployment, hub, index, rollout

__all__ = ["routes"]

_Document = dict[str, Any]


def routes(
    db: Database, kept: Kept, sessions: Sessions, clock: Callable[[], int] = now_us, *, is_hub: bool = False
) -> tuple[list[Route], Live]:
    """Pages over a database, and what keeps open ones up to date, which the server ends before it drains.

    Handlers are plain functions, so Starlette runs them in threads, off the loop.
    """
    pages = _Pages(db, kept, clock, is_hub=is_hub)
    live = Live()
    routes = [
        *_pair("/", "/index.json", "index.html", pages.index, sessions),
        *_pair("/rollouts/{key}", "/rollouts/{key}.json", "rollout.html", pages.rollout, sessions),
        live.route("/rollouts/{key}/events", _version(lambda request: pages.of(request.path_params["key"], Asked()))),
        live.route("/deployments/{id:path}.events", _version(pages.deployment)),
        *_pair("/deployments/{id:path}", "/deployments/{id:path}.json", "deployment.html", pages.deployment, sessions),
        *_pair("/hub", "/hub.json", "hub.html", pages.hub, sessions),
        live.route("/hub/events", _version(pages.living_hub)),
        # Before the actions, among which it is none.
        *feedback.routes(db, sessions, clock),
        *acting.routes(db, kept, sessions, clock),
        *login.routes(sessions),
        *static.routes(),
    ]
    return routes, live


class _Pages:
    """The documents, by request."""

    def __init__(self, db: Database, kept: Kept, clock: Callable[[], int], *, is_hub: bool) -> None:
        self._db, self._kept, self._clock, self._is_hub = db, kept, clock, is_hub

    def index(self, _: Request) -> _Document:
        return index.page(self._db, self._kept.evidence, self._clock(), hub=self._is_hub)

    def rollout(self, request: Request) -> _Document:
        return self.of(request.path_params["key"], asked(request.query_params))

    def hub(self, request: Request) -> _Document:
        outcome = asked(request.query_params).outcome
        with self._db.read() as conn:
            return hub.page(conn, hub=self._is_hub, outcome=outcome, now=self._clock())

    def living_hub(self, request: Request) -> _Document:
        """For events: where this collector is no hub the page stays as it is."""
        if not self._is_hub:
            hint = "its operator starts it with --hub to be one"
            raise NotFound("this collector is no hub", hint=hint, code=ErrorCode.NOT_A_HUB)
        return self.hub(request)

    def deployment(self, request: Request) -> _Document:
        name = request.path_params["id"] or request.query_params.get("id", "")
        with self._db.read() as conn:
            keys = flags.keys(conn)
        key = request.query_params.get("flag") or next(iter(keys), None)
        evidence = self._kept.evidence(key) if key else None
        with self._db.read() as conn:
            return deployment.page(conn, name, key, evidence, self._clock())

    def of(self, key: str, view: Asked) -> _Document:
        evidence = self._kept.evidence(key)
        with self._db.read() as conn:
            return rollout.page(conn, key, evidence, view, self._clock())


def _version(build: Callable[[Request], _Document]) -> Callable[[Request], str]:
    return lambda request: str(build(request)["version"])


def _pair(
    path: str, twin: str, template: str, build: Callable[[Request], _Document], sessions: Sessions
) -> list[Route]:
    """A page and its twin: the page shows the document and nothing else. The twin first, since `{key}` fits it too."""

    def shown(request: Request) -> Response:
        viewer = viewer_of(request, sessions)
        try:
            document = build(request)
        except KvflagsError as problem:
            return failed(problem, viewer)
        return html(template, {"page": document}, viewer)

    def bare(request: Request) -> Response:
        try:
            document = build(request)
        except KvflagsError as problem:
            return JSONResponse({"error": error(problem)}, status_of(problem), HEADERS)
        return JSONResponse(document, headers=HEADERS)

    return [Route(twin, bare), Route(path, shown)]
