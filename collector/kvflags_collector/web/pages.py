# SPDX-License-Identifier: Apache-2.0
"""The routes of the pages: `/`, a rollout's report, their JSON twins, and the stylesheet."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from kvflags.errors import KvflagsError, NotFound
from kvflags_collector.feedback import report
from kvflags_collector.rollout import flags
from kvflags_collector.store.database import Database
from kvflags_collector.times import now_us, rfc3339
from kvflags_collector.web.render import render

__all__ = ["routes"]

# No scripts at all, nothing from anywhere else: whatever a span or a comment says, a browser only shows it.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def routes(db: Database, clock: Callable[[], int] = now_us) -> list[Route]:
    """Pages over a database. Handlers are plain functions, so Starlette runs them in threads, off the loop."""
    pages = _Pages(db, clock)
    return [
        Route("/", pages.index),
        Route("/index.json", pages.index_json),
        Route("/rollouts/{key}.json", pages.rollout_json),
        Route("/rollouts/{key}", pages.rollout),
        Route("/static/kvflags.css", _stylesheet),
    ]


class _Pages:
    def __init__(self, db: Database, clock: Callable[[], int]) -> None:
        self._db = db
        self._clock = clock

    def index(self, _: Request) -> Response:
        return _page("index.html", self._overview())

    def index_json(self, _: Request) -> Response:
        return JSONResponse(self._overview(), headers=_HEADERS)

    def rollout(self, request: Request) -> Response:
        try:
            document = report.build(self._db, request.path_params["key"], self._clock())
        except KvflagsError as problem:
            return _page("error.html", {"error": _error(problem)}, _status(problem))
        return _page("rollout.html", {"report": document})

    def rollout_json(self, request: Request) -> Response:
        try:
            document = report.build(self._db, request.path_params["key"], self._clock())
        except KvflagsError as problem:
            return JSONResponse({"error": _error(problem)}, _status(problem), _HEADERS)
        return JSONResponse(document, headers=_HEADERS)

    def _overview(self) -> dict[str, Any]:
        now = self._clock()
        with self._db.read() as conn:
            keys = [flag["key"] for flag in flags.listing(conn)]
        reports = [report.build(self._db, key, now) for key in keys]
        shown = ("flag", "verdict", "data_health")
        return {
            "schema": "kvflags.index/1",
            "generated_at": rfc3339(now),
            "rollouts": [{name: one[name] for name in shown} | {"standing": _standing(one)} for one in reports],
        }


def _standing(one: dict[str, Any]) -> int:
    """Alarms that have not ended."""
    return sum(alarm["ended_at"] is None for alarm in one["alarms"])


def _page(template: str, values: dict[str, Any], status: int = 200) -> HTMLResponse:
    return HTMLResponse(render(template, values), status, _HEADERS)


def _error(problem: KvflagsError) -> dict[str, str]:
    return {"code": problem.code.value, "message": problem.message, "hint": problem.hint}


def _status(problem: KvflagsError) -> int:
    return 404 if isinstance(problem, NotFound) else 503


async def _stylesheet(_: Request) -> Response:
    text = (files("kvflags_collector.web") / "static" / "kvflags.css").read_text("utf-8")
    return Response(text, media_type="text/css", headers={"X-Content-Type-Options": "nosniff"})
