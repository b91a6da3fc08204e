# SPDX-License-Identifier: Apache-2.0
"""Forms that pages send: read within bounds, and only from pages of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from kvflags.errors import KvflagsError, UsageError
from kvflags_collector.access.sessions import COOKIE, Sessions
from kvflags_collector.web.answers import failed

__all__ = ["Fields", "author", "checked", "from_our_page", "handled", "revision", "text"]

Fields = Mapping[str, str]
_Model = TypeVar("_Model", bound=BaseModel)
_MOST_FIELDS = 20
_AGAIN = "load the page again and send its form"


def handled(act: Callable[[Request, Fields], Response]) -> Callable[[Request], object]:
    """A route's handler: the body is read on the loop, and `act` runs in a thread. What it raises becomes a page."""

    async def handle(request: Request) -> Response:
        body = await request.body()
        try:
            return await run_in_threadpool(act, request, _fields(request, body))
        except KvflagsError as problem:
            return failed(problem)

    return handle


def from_our_page(request: Request, fields: Fields, sessions: Sessions) -> None:
    """UsageError for a form that a page of ours did not make: another site has a browser send what it likes."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site not in {"same-origin", "none"} or not sessions.ours(fields.get("form", ""), request.cookies.get(COOKIE)):
        raise UsageError("this form was not made for you by this collector, or you signed in since", hint=_AGAIN)


def checked(model: type[_Model], asked: Mapping[str, Any]) -> _Model:
    """As the API checks it. UsageError with the first thing that is wrong with what was filled in."""
    try:
        return model.model_validate(asked)
    except ValidationError as wrong:
        [first, *_] = wrong.errors()
        where = first["loc"][0] if first["loc"] else "the form"
        raise UsageError(f"{where}: {first['msg']}", hint="go back; nothing was changed") from wrong


def text(fields: Fields, name: str) -> str:
    """A field as it was typed, without white space around it; empty where there is none."""
    return fields.get(name, "").replace("\r\n", "\n").strip()


def author(fields: Fields) -> str | None:
    """Who says that it is them; None where the token says it."""
    return text(fields, "author") or None


def revision(fields: Fields) -> int:
    """What the form was made from. UsageError for a form that no page of ours made."""
    given = fields.get("revision", "")
    if not (given.isascii() and given.isdecimal() and len(given) < 10):
        raise UsageError("the form does not say which revision it is based on", hint="load the page again")
    return int(given)


def _fields(request: Request, body: bytes) -> Fields:
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if body and kind != "application/x-www-form-urlencoded":
        raise UsageError("a form is sent as application/x-www-form-urlencoded", hint=_AGAIN)
    try:
        return dict(
            parse_qsl(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
        )
    except ValueError as error:
        raise UsageError("the form cannot be read", hint=_AGAIN) from error
