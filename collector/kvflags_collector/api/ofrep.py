# SPDX-License-Identifier: Apache-2.0
"""OpenFeature's Remote Evaluation Protocol, 0.3.0: one flag and all of them, read-only; its own shapes of errors."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from kvflags.errors import KvflagsError
from kvflags.settings import id_problem
from kvflags_collector.api import ofrep_shapes
from kvflags_collector.api.context import Ctx
from kvflags_collector.api.errors import status_of
from kvflags_collector.rollout import flags, ofrep

__all__ = ["router"]

_log = logging.getLogger(__name__)


class _Refused(Exception):
    def __init__(self, status: int, code: str, details: str, key: str | None = None) -> None:
        super().__init__(details)
        self.status = status
        self.body = {"errorCode": code, "errorDetails": details} | ({} if key is None else {"key": key})


class _Route(APIRoute):
    """Whatever goes wrong is answered in the protocol's shapes, which its clients read; none of them knows ours."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's own handler, with its exceptions turned into answers."""
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await inner(request)
            except _Refused as refused:
                return JSONResponse(refused.body, refused.status)
            except KvflagsError as error:
                status = status_of(error)
                headers = {"Retry-After": "1"} if status == 503 else None
                return JSONResponse({"errorDetails": f"{error.message}; {error.hint}"}, status, headers)
            except Exception:  # noqa: BLE001 - no handler of the application's would speak the protocol
                _log.exception("%r failed", request.url.path)
                return JSONResponse({"errorDetails": "the collector failed; see its log"}, 500)

        return handle


router = APIRouter(prefix="/ofrep/v1/evaluate", tags=["ofrep"], route_class=_Route)


@dataclass(frozen=True, slots=True)
class _Context:
    """What is asked about. `given` is the whole context, which the ETag covers: another context, another answer."""

    deployment: str
    generation: str | None
    given: dict[str, Any]


async def _context(request: Request) -> _Context:
    key = request.path_params.get("key")
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise _Refused(400, "PARSE_ERROR", "the body is not JSON, or nested too deeply", key) from None
    given = body.get("context") if isinstance(body, dict) else None
    if not isinstance(given, dict):
        raise _Refused(400, "INVALID_CONTEXT", "the body has no context object", key)
    deployment, generation = given.get("targetingKey"), given.get("generation")
    if deployment is None or deployment == "":
        raise _Refused(400, "TARGETING_KEY_MISSING", "context.targetingKey names the deployment", key)
    for name, value in (("targetingKey", deployment), ("generation", generation or "default")):
        if not isinstance(value, str) or len(value) > 253 or id_problem(value):
            raise _Refused(400, "INVALID_CONTEXT", f"context.{name} is no name such as cluster/namespace/name", key)
    return _Context(str(deployment), generation or None, given)


Context = Annotated[_Context, Depends(_context)]


@router.post("/flags/{key}", response_model=None, responses=ofrep_shapes.SINGLE, openapi_extra=ofrep_shapes.REQUEST)
def evaluate(key: str, context: Context, ctx: Ctx) -> dict[str, Any]:
    """One flag for the deployment in `context.targetingKey`; `context.generation` names one of its generations."""
    with ctx.db.read() as conn:
        flag = next((flag for flag in flags.by_feature(conn).values() if flag.key == key), None)
        if flag is None:
            raise _Refused(404, "FLAG_NOT_FOUND", "there is no such flag, or it was put away", key)
        return ofrep.evaluate(conn, flag, context.deployment, context.generation, ctx.clock())


@router.post("/flags", response_model=None, responses=ofrep_shapes.BULK, openapi_extra=ofrep_shapes.REQUEST)
def evaluate_all(
    context: Context, ctx: Ctx, response: Response, if_none_match: Annotated[str | None, Header()] = None
) -> Any:  # noqa: ANN401 - a document, or 304 without one
    """All flags for one deployment, with an ETag over flags and context; 304 when neither changed."""
    with ctx.db.read() as conn:
        found = ofrep.evaluate_all(conn, context.deployment, context.generation, ctx.clock())
    tag = _etag(context.given, found)
    if _matches(if_none_match, tag):
        return Response(status_code=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return {"flags": found}


def _matches(if_none_match: str | None, tag: str) -> bool:
    """Whether a client has this answer already: it may list several, and a proxy on the way may have made them weak."""
    given = [one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")]
    return tag in given or "*" in given


def _etag(context: dict[str, Any], found: list[dict[str, Any]]) -> str:
    canonical = json.dumps([context, found], sort_keys=True, separators=(",", ":"))
    return f'"{hashlib.sha256(canonical.encode()).hexdigest()[:32]}"'
