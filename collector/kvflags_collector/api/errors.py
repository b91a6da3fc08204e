# SPDX-License-Identifier: Apache-2.0
"""From an error to a response, in one place: `{"error": {"code", "message", "hint"}}` and a status."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from kvflags.errors import (
    Conflict,
    ErrorCode,
    KvflagsError,
    NotFound,
    OperatorError,
    Unauthorized,
    Unavailable,
    UsageError,
)

__all__ = ["RESPONSES", "envelope", "install", "status_of"]

_log = logging.getLogger(__name__)


class _Error(BaseModel):
    """What went wrong: a stable code, the same in words, and what to do about it."""

    code: str
    message: str
    hint: str
    detail: dict[str, Any] | None = None


class _Envelope(BaseModel):
    error: _Error


# What every operation may answer; the guard and the limits of the body refuse before any of them is reached.
RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": _Envelope, "description": "refused: the request has to change"},
    "5XX": {"model": _Envelope, "description": "failed: 503 with Retry-After where asking again may help"},
}

# The most particular class first.
_STATUS: tuple[tuple[type[KvflagsError], int], ...] = (
    (NotFound, 404),
    (Conflict, 409),
    (UsageError, 400),
    (Unauthorized, 401),
    (Unavailable, 503),
    (OperatorError, 503),
    (KvflagsError, 500),
)


def envelope(
    code: str,
    message: str,
    hint: str,
    status: int,
    *,
    headers: dict[str, str] | None = None,
    detail: Mapping[str, Any] | None = None,
) -> JSONResponse:
    """The one shape of an error; `detail` only where there is one."""
    error: dict[str, Any] = {"code": code, "message": message, "hint": hint}
    body = {"error": error if detail is None else {**error, "detail": detail}}
    return JSONResponse(body, status_code=status, headers=headers)


def install(app: FastAPI) -> None:
    """Answer every exception of a handler with the envelope."""
    app.add_exception_handler(KvflagsError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _internal)


def status_of(error: KvflagsError) -> int:
    """The HTTP status that says the same as this error."""
    return next(status for kind, status in _STATUS if isinstance(error, kind))


async def _ours(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, KvflagsError)
    status = status_of(error)
    # A client that asks again at once makes a busy database busier.
    headers = {"Retry-After": "1"} if status == 503 else None
    return envelope(error.code, error.message, error.hint, status, headers=headers, detail=error.detail)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = "; ".join(_says(problem) for problem in error.errors()[:5])
    return envelope(ErrorCode.INVALID, problems, "see /openapi.json for the shape of each request", 400)


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers) if error.headers else None
    message = f"{request.method} {request.url.path}: {error.detail}"
    return envelope(
        ErrorCode.INVALID, message, "see /openapi.json for what there is", error.status_code, headers=headers
    )


async def _internal(request: Request, error: Exception) -> JSONResponse:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return envelope(ErrorCode.INTERNAL, "the collector failed", "see its log", 500)


def _says(problem: dict[str, Any]) -> str:
    where: Sequence[object] = [part for part in problem["loc"] if part not in {"body", "query", "path"}]
    return f"{'.'.join(map(str, where)) or 'body'}: {problem['msg']}"
