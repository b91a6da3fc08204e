# SPDX-License-Identifier: Apache-2.0
"""What an operator does from a page: the same changes as the API's, from a form that names the revision it saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from kvflags.errors import Conflict, ErrorCode, NotFound, UsageError
from kvflags.flags import Flag
from kvflags_collector.access.sessions import Sessions
from kvflags_collector.api.schemas.signed import Change
from kvflags_collector.rollout import course, flags
from kvflags_collector.store.database import Database
from kvflags_collector.web.answers import error, html
from kvflags_collector.web.forms import Fields, author, checked, from_our_page, handled, revision, text
from kvflags_collector.web.kept import Kept
from kvflags_collector.web.viewer import viewer_of
from kvflags_collector.web.views.actions import ACTIONS, Action, refused, shown

__all__ = ["CHANGES", "routes"]

CHANGES: Mapping[str, Callable[..., Flag]] = {
    "abort": flags.abort,
    "kill": partial(flags.kill_switch, on=True),
    "unkill": partial(flags.kill_switch, on=False),
    "pause": course.pause,
    "resume": course.resume,
    "start": flags.start,
    "promote": course.promote,
    "default": course.make_default,
}


def routes(db: Database, kept: Kept, sessions: Sessions, clock: Callable[[], int]) -> list[Route]:
    """`POST /rollouts/{key}/{action}`; a person is then led back to the page, which shows what came of it."""

    def act(request: Request, fields: Fields) -> Response:
        key, action = request.path_params["key"], _action(request.path_params["action"])
        from_our_page(request, fields, sessions)
        change = _change(action, key, fields)
        _allowed(action, kept, key)
        try:
            with db.write() as conn:
                CHANGES[action.name](conn, key, **change, now=clock())
        except Conflict as stale:
            if stale.code != ErrorCode.STALE_REVISION:
                raise
            with db.read() as conn:
                now = shown(action, flags.shown(conn, key, clock()), None)
            values = {"error": error(stale), "since": (stale.detail or {}).get("since", []), "action": now, "key": key}
            return html("stale.html", values | {"reason": change["reason"]}, viewer_of(request, sessions), 409)
        return RedirectResponse(f"/rollouts/{quote(key)}#banner", 303)

    return [Route("/rollouts/{key}/{action}", handled(act), methods=["POST"])]


def _action(name: str) -> Action:
    if name not in ACTIONS:
        raise NotFound(f"there is no action {name!r}", hint=f"actions: {', '.join(ACTIONS)}", code=ErrorCode.INVALID)
    return ACTIONS[name]


def _change(action: Action, key: str, fields: Fields) -> dict[str, Any]:
    """`{author, reason, revision}`, checked as the API checks them. Stopping asks for no reason, and has one anyway."""
    asked = {"author": author(fields), "reason": text(fields, "reason") or action.reason, "revision": revision(fields)}
    if action.typed and text(fields, "typed") != key:
        raise UsageError(f"to confirm, type the name of the flag: {key}", hint="nothing was changed")
    return checked(Change, asked).model_dump()


def _allowed(action: Action, kept: Kept, key: str) -> None:
    if not action.promotes:
        return
    if because := refused(action, kept.evidence(key).report["verdict"]["state"]):
        hint = f"put it right first, or use the command line: kvflags rollout {action.command.split()[0]} {key}"
        raise Conflict(f"{action.label} is not offered: {because}", hint=hint, code=ErrorCode.WRONG_PHASE)
