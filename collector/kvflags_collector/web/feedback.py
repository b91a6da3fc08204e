# SPDX-License-Identifier: Apache-2.0
"""Feedback from a page: what a person says of a rollout in one deployment, how they change it, and take it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from kvflags.errors import Conflict, ErrorCode
from kvflags_collector.access.sessions import Sessions
from kvflags_collector.api.schemas.feedback import EditFeedback, GiveFeedback
from kvflags_collector.api.schemas.signed import Change
from kvflags_collector.feedback import given
from kvflags_collector.rollout import flags
from kvflags_collector.rollout.audit import Actor
from kvflags_collector.store.database import Database
from kvflags_collector.web.answers import error, html
from kvflags_collector.web.forms import Fields, author, checked, from_our_page, handled, revision, text
from kvflags_collector.web.viewer import viewer_of
from kvflags_collector.web.views import said

__all__ = ["routes"]

# What is done to one that was given: (connection, flag, name, what the form asks for, time).
_Do = Callable[[Connection, str, str, dict[str, Any], int], object]


def routes(db: Database, sessions: Sessions, clock: Callable[[], int]) -> list[Route]:
    """`POST /rollouts/{key}/feedback`, and on one that was given `/{name}/edit` and `/{name}/withdraw`."""

    def give(request: Request, fields: Fields) -> Response:
        key = request.path_params["key"]
        from_our_page(request, fields, sessions)
        says = {"deployment": text(fields, "deployment"), "author": author(fields)}
        body = checked(GiveFeedback, _said(fields) | says)
        with db.write() as conn:
            flag = flags.get(conn, key)
            given.give(conn, flag.key, body.deployment, body.said(), author=body.author, now=clock())
        return RedirectResponse(f"/rollouts/{quote(key)}#feedback", 303)

    def on_one(typed_by: Callable[[Fields], dict[str, Any]], do: _Do) -> Callable[[Request, Fields], Response]:
        def act(request: Request, fields: Fields) -> Response:
            key, name = request.path_params["key"], request.path_params["name"]
            from_our_page(request, fields, sessions)
            typed = typed_by(fields)
            try:
                with db.write() as conn:
                    do(conn, flags.get(conn, key).key, name, typed, clock())
            except Conflict as stale:
                if stale.code != ErrorCode.STALE_REVISION:
                    raise
                with db.read() as conn:
                    values = {"page": said.page(conn, key, name, clock()), "stale": error(stale), "typed": typed}
                return html("said.html", values, viewer_of(request, sessions), 409)
            return RedirectResponse(f"/rollouts/{quote(key)}/feedback/{quote(name)}", 303)

        return act

    one = "/rollouts/{key}/feedback/{name}"
    return [
        Route("/rollouts/{key}/feedback", handled(give), methods=["POST"]),
        Route(f"{one}/edit", handled(on_one(_edited, _edit)), methods=["POST"]),
        Route(f"{one}/withdraw", handled(on_one(_change, _withdraw)), methods=["POST"]),
    ]


def _edit(conn: Connection, key: str, name: str, typed: dict[str, Any], now: int) -> None:
    new = {field: typed[field] for field in ("sign", "tags", "comment")}
    given.edit(conn, key, name, new, **_by(typed), now=now)


def _withdraw(conn: Connection, key: str, name: str, typed: dict[str, Any], now: int) -> None:
    given.withdraw(conn, key, name, **_by(typed), now=now)


def _by(typed: dict[str, Any]) -> dict[str, Any]:
    return {"actor": Actor(author=typed["author"], reason=typed["reason"]), "revision": typed["revision"]}


def _edited(fields: Fields) -> dict[str, Any]:
    body = checked(EditFeedback, _said(fields) | _why(fields))
    return body.model_dump() | body.said()


def _change(fields: Fields) -> dict[str, Any]:
    return checked(Change, _why(fields)).model_dump()


def _said(fields: Fields) -> dict[str, Any]:
    tags = [tag for tag in given.TAGS if fields.get(f"tag-{tag}")]
    return {"sign": text(fields, "sign"), "tags": tags, "comment": text(fields, "comment")}


def _why(fields: Fields) -> dict[str, Any]:
    return {"reason": text(fields, "reason"), "revision": revision(fields), "author": author(fields)}
