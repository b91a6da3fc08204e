# SPDX-License-Identifier: Apache-2.0
"""The routes of the pages, each with its JSON twin, and of what they load."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from kvflags.errors import ErrorCode, KvflagsError, NotFound
from kvflags_collector.access.sessions import Sessions
from kvflags_collector.api.errors import status_of
from kvflags_collector.rollout import flags
from kvflags_collector.store.database import Database
from kvflags_collector.times import SECOND, now_us
from kvflags_collector.web import acting, feedback, login, static
from kvflags_collector.web.answers import HEADERS, error, failed
from kvflags_collector.web.asked import Asked, asked
from kvflags_collector.web.kept import Kept
from kvflags_collector.web.live import Live
from kvflags_collector.web.shared import Shared, Shown
from kvflags_collector.web.viewer import viewer_of
from kvflags_collector.web.views import deployment, hub, index, rollout, said
from kvflags_collector.web.views.changed import changed
from kvflags_collector.web.views.rollout import Evidence

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
    one = "/rollouts/{key}/feedback/{name}"
    routes = [
        *_pair("/", "/index.json", "index.html", pages.index, sessions),
        live.route("/events", _version(pages.index)),
        *_pair("/rollouts/{key}", "/rollouts/{key}.json", "rollout.html", pages.rollout, sessions),
        live.route("/rollouts/{key}/events", _version(lambda request: pages.of(request.path_params["key"], Asked()))),
        *_pair(one, f"{one}.json", "said.html", pages.said, sessions),
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
        self._shared = Shared()

    def index(self, _: Request) -> Shown:
        with self._db.read() as conn:
            keys = flags.keys(conn)
        evidence = {key: self._kept.evidence(key) for key in keys}

        def make() -> _Document:
            with self._db.read() as conn:
                return index.page(conn, evidence, self._clock(), hub=self._is_hub)

        return self._share("/", evidence.values(), make)

    def rollout(self, request: Request) -> Shown:
        return self.of(request.path_params["key"], asked(request.query_params))

    def of(self, key: str, view: Asked) -> Shown:
        evidence = self._kept.evidence(key)

        def make() -> _Document:
            with self._db.read() as conn:
                return rollout.page(conn, key, evidence, view, self._clock())

        return self._share(("rollouts", key, view), [evidence], make)

    def deployment(self, request: Request) -> Shown:
        name = request.path_params["id"] or request.query_params.get("id", "")
        with self._db.read() as conn:
            keys = flags.keys(conn)
        key = request.query_params.get("flag") or next(iter(keys), None)
        evidence = self._kept.evidence(key) if key else None

        def make() -> _Document:
            with self._db.read() as conn:
                return deployment.page(conn, name, key, evidence, self._clock())

        return self._share(("deployments", name, key), [evidence] if evidence else [], make)

    def said(self, request: Request) -> Shown:
        with self._db.read() as conn:
            return Shown(said.page(conn, request.path_params["key"], request.path_params["name"], self._clock()))

    def hub(self, request: Request) -> Shown:
        outcome = asked(request.query_params).outcome
        with self._db.read() as conn:
            return Shown(hub.page(conn, hub=self._is_hub, outcome=outcome, now=self._clock()))

    def living_hub(self, request: Request) -> Shown:
        """For events: where this collector is no hub the page stays as it is."""
        if not self._is_hub:
            hint = "its operator starts it with --hub to be one"
            raise NotFound("this collector is no hub", hint=hint, code=ErrorCode.NOT_A_HUB)
        return self.hub(request)

    def _share(self, what: Hashable, evidence: Iterable[Evidence], make: Callable[[], _Document]) -> Shown:
        """Made anew each second, and at once where somebody changed something: who acts sees what came of it."""
        with self._db.read() as conn:
            news = changed(conn)
        rests_on = tuple((one.version, one.report["generated_at"]) for one in evidence)
        return self._shared.get(what, (self._clock() // SECOND, news, rests_on), make)


def _version(build: Callable[[Request], Shown]) -> Callable[[Request], str]:
    return lambda request: str(build(request).document["version"])


def _pair(path: str, twin: str, template: str, build: Callable[[Request], Shown], sessions: Sessions) -> list[Route]:
    """A page and its twin: the page shows the document and nothing else. The twin first, since `{key}` fits it too."""

    def shown(request: Request) -> Response:
        viewer = viewer_of(request, sessions)
        try:
            text = build(request).page(template, viewer)
        except KvflagsError as problem:
            return failed(problem, viewer)
        return HTMLResponse(text, headers=HEADERS)

    def bare(request: Request) -> Response:
        try:
            document = build(request).document
        except KvflagsError as problem:
            return JSONResponse({"error": error(problem)}, status_of(problem), HEADERS)
        return JSONResponse(document, headers=HEADERS)

    return [Route(twin, bare), Route(path, shown)]
