# SPDX-License-Identifier: Apache-2.0
"""Feedback from a page: what a person says of a rollout in one deployment."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from kvflags_collector.access.sessions import Sessions
from kvflags_collector.api.schemas.feedback import GiveFeedback
from kvflags_collector.feedback import given
from kvflags_collector.rollout import flags
from kvflags_collector.store.database import Database
from kvflags_collector.web.forms import Fields, from_our_page, handled, invalid

__all__ = ["routes"]


def routes(db: Database, sessions: Sessions, clock: Callable[[], int]) -> list[Route]:
    """`POST /rollouts/{key}/feedback`."""

    def give(request: Request, fields: Fields) -> Response:
        key = request.path_params["key"]
        from_our_page(request, fields, sessions)
        body = _body(fields)
        with db.write() as conn:
            flag = flags.get(conn, key)
            given.give(conn, flag.key, body.deployment, body.said(), author=body.author, now=clock())
        return RedirectResponse(f"/rollouts/{quote(key)}#feedback", 303)

    return [Route("/rollouts/{key}/feedback", handled(give), methods=["POST"])]


def _body(fields: Fields) -> GiveFeedback:
    said = {name: fields.get(name, "").replace("\r\n", "\n").strip() for name in ("deployment", "sign", "comment")}
    tags = [tag for tag in given.TAGS if fields.get(f"tag-{tag}")]
    try:
        return GiveFeedback.model_validate(said | {"tags": tags, "author": fields.get("author", "").strip() or None})
    except ValidationError as wrong:
        raise invalid(wrong) from wrong
