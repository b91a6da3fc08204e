# SPDX-License-Identifier: Apache-2.0
"""One HTTP client of the collector's API: JSON in and out, and every failure as a KvflagsError with a hint."""

from __future__ import annotations

import re
import ssl
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from kvflags.errors import ErrorCode, KvflagsError, Unauthorized, Unavailable, UsageError
from kvflags.local_token import LocalToken
from kvflags_cli.settings import Connection

__all__ = ["Client", "Json"]

Json = dict[str, Any]

# A collector that lives answers a connection at once, so 3 s is patience enough; a report may first fold what came in
# since the last roll-up, which it bounds at 2 s, and then reads a whole fleet.
_TIMEOUT = httpx.Timeout(30, connect=3)

# The most that a collector puts into one page is 1000; half of that keeps each answer within a second.
_PAGE = "500"

_ERRNO = re.compile(r"^\[Errno -?\d+\] ")


class Client:
    """`get`, `post` and `put` take the path below /api/v1 in pieces, each of which is quoted, so that a deployment's
    slashes or a flag's odd characters stay inside their piece. `items`: a list, all of its pages. `page`: what a
    rollout's page shows, as its document. All raise KvflagsError."""

    def __init__(self, connection: Connection, *, timeout: httpx.Timeout | float = _TIMEOUT) -> None:
        self.connection = connection
        headers = {"Authorization": f"Bearer {connection.token}"} if connection.token else {}
        self._http = httpx.Client(
            base_url=connection.url,
            headers=headers,
            timeout=timeout,
            trust_env=not connection.loopback,
            verify=_trusted() if connection.url.startswith("https") else True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, *path: str, **query: str) -> Json:
        return _body(self._send("GET", _below(path), params=query), self.connection)

    def items(self, *path: str, **query: str) -> list[Json]:
        listed, cursor = list[Json](), dict[str, str]()
        while True:
            page = self.get(*path, limit=_PAGE, **query, **cursor)
            listed += page["items"]
            if page.get("next") is None:
                return listed
            cursor = {"cursor": page["next"]}

    def post(self, *path: str, body: Json) -> Json:
        return _body(self._send("POST", _below(path), json=body), self.connection)

    def put(self, *path: str, body: Json) -> Json:
        return _body(self._send("PUT", _below(path), json=body), self.connection)

    def page(self, key: str) -> Json:
        return _body(self._send("GET", f"/rollouts/{quote(key, safe='')}.json"), self.connection)

    def probe(self) -> httpx.Response:
        """Readiness, as it was answered: for `doctor`, which looks at the clock too."""
        return self._send("GET", "/readyz")

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - httpx's own options
        try:
            return self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise _unreachable(self.connection, error) from error


def _trusted() -> ssl.SSLContext:
    """The machine's own certificates, or those of SSL_CERT_FILE: a fleet's authority is seldom a public one."""
    return ssl.create_default_context()


def _below(path: tuple[str, ...]) -> str:
    return "/".join(["/api/v1", *(quote(piece, safe="") for piece in path)])


def _body(response: httpx.Response, connection: Connection) -> Json:
    try:
        body = response.json()
    except ValueError:
        body = None
    if response.is_success and isinstance(body, dict):
        return body
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        raise _told(response.status_code, error, connection)
    raise Unavailable(
        f"{connection.url} answered {response.status_code}, but not as a kvflags collector does",
        hint=f"its address comes from {connection.origin}; is something else listening there?",
    )


def _told(status: int, error: Json, connection: Connection) -> KvflagsError:
    """The collector's own error. Its code decides the exit code; a code of a newer collector goes by the status."""
    message, hint = error["message"], error.get("hint") or ""
    if status in {401, 403} and connection.local:
        hint = _about(connection.local) or hint
    known = {code.value: code for code in ErrorCode}
    return _kind(status)(message, hint=hint, code=known.get(error.get("code", "")), detail=error.get("detail"))


def _about(local: LocalToken) -> str:
    """What to do about the token that a collector of this machine left, where it did not open."""
    if local.problem:
        return f"{local.path} {local.problem}, so its token is not used; KVFLAGS_TOKEN goes before it"
    return f"{local.path} holds no token of this collector: restart it, or set KVFLAGS_TOKEN" if local.value else ""


def _kind(status: int) -> type[KvflagsError]:
    if status in {401, 403}:
        return Unauthorized
    if status in {429, 502, 503, 504}:
        return Unavailable
    return UsageError if status < 500 else KvflagsError


def _unreachable(connection: Connection, error: httpx.HTTPError) -> Unavailable:
    silent = isinstance(error, httpx.TimeoutException)
    why = "it does not answer" if silent else _ERRNO.sub("", str(error)).lower() or type(error).__name__
    told = f"at {connection.url} (from {connection.origin}): {why}"
    if connection.hub:
        return Unavailable(
            f"cannot reach the hub {told}",
            hint="try again later; to carry it there: kvflags feedback bundle KEY --out FILE",
        )
    return Unavailable(
        f"cannot reach the collector {told}",
        hint="start one with `kvflags serve`, or name yours with --collector URL or KVFLAGS_COLLECTOR_URL",
    )
