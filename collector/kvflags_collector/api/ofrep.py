# SPDX-License-Identifier: Apache-2.0
"""OpenFeature's Remote Evaluation Protocol, 0.3.0: one flag and all of them, read-only; its own shapes of errors."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Request, Response
from fastapi.responses import JSONResponse

from kvflags.errors import NotFound
from kvflags.settings import id_problem
from kvflags_collector.api.context import Ctx
from kvflags_collector.rollout import flags, ofrep

__all__ = ["install", "router"]

router = APIRouter(prefix="/ofrep/v1/evaluate", tags=["ofrep"])


class _Refused(Exception):
    def __init__(self, status: int, code: str, details: str, key: str | None = None) -> None:
        super().__init__(details)
        self.status = status
        self.body = {"errorCode": code, "errorDetails": details} | ({} if key is None else {"key": key})


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
    except ValueError:
        raise _Refused(400, "PARSE_ERROR", "the body is not JSON", key) from None
    given = body.get("context") if isinstance(body, dict) else None
    if not isinstance(given, dict):
        raise _Refused(400, "INVALID_CONTEXT", "the body has no context object", key)
    deployment, generation = given.get("targetingKey"), given.get("generation")
    if deployment in {None, ""}:
        raise _Refused(400, "TARGETING_KEY_MISSING", "context.targetingKey names the deployment", key)
    for name, value in (("targetingKey", deployment), ("generation", generation or "default")):
        if not isinstance(value, str) or len(value) > 253 or id_problem(value):
            raise _Refused(400, "INVALID_CONTEXT", f"context.{name} is no name such as cluster/namespace/name", key)
    return _Context(str(deployment), generation or None, given)


Context = Annotated[_Context, Depends(_context)]


@router.post("/flags/{key}")
def evaluate(key: str, context: Context, ctx: Ctx) -> dict[str, Any]:
    """One flag for the deployment in `context.targetingKey`; `context.generation` names one of its generations."""
    with ctx.db.read() as conn:
        try:
            flag = flags.get(conn, key)
        except NotFound as error:
            raise _Refused(404, "FLAG_NOT_FOUND", error.message, key) from error
        return ofrep.evaluate(conn, flag, context.deployment, context.generation, ctx.clock())


@router.post("/flags")
def evaluate_all(
    context: Context, ctx: Ctx, response: Response, if_none_match: Annotated[str | None, Header()] = None
) -> Any:  # noqa: ANN401 - a document, or 304 without one
    """All flags for one deployment, with an ETag over flags and context; 304 when neither changed."""
    with ctx.db.read() as conn:
        found = ofrep.evaluate_all(conn, context.deployment, context.generation, ctx.clock())
    tag = _etag(context.given, found)
    if if_none_match == tag:
        return Response(status_code=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return {"flags": found}


def install(app: FastAPI) -> None:
    """Answer the protocol's refusals in its own shape."""
    app.add_exception_handler(_Refused, _refused)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, _Refused)
    return JSONResponse(error.body, status_code=error.status)


def _etag(context: dict[str, Any], found: list[dict[str, Any]]) -> str:
    canonical = json.dumps([context, found], sort_keys=True, separators=(",", ":"))
    return f'"{hashlib.sha256(canonical.encode()).hexdigest()[:32]}"'
