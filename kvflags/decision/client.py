# SPDX-License-Identifier: Apache-2.0
"""The engine's way to the collector: JSON over HTTP/1.1, one deadline for everything from the name to the last byte.

Standard library only, no threads, no proxies (a proxy set for model downloads must not see the fleet), no redirects
(the token goes to the address that was configured and nowhere else).
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote, urlsplit

from kvflags._version import __version__
from kvflags.decision.deadline import Deadline, open_socket, send_all
from kvflags.errors import ErrorCode, KvflagsError, Unavailable
from kvflags.sent import Kind, LastSent, Result

__all__ = ["Client", "ClientError"]

# A decision is below 2 kB. The bound keeps a wrong address (a download, a log stream) from filling the host's memory.
_MAX_ANSWER = 256 * 1024

# Answers that mean "not now": asking again later is right. All others are about what was asked.
_NOT_NOW = frozenset({408, 425, 429, 500, 502, 503, 504})


class ClientError(KvflagsError):
    """The collector answered, and refused. `status` is the HTTP status, `code` the collector's own where known."""

    def __init__(self, status: int, message: str, *, hint: str = "", code: ErrorCode | None = None) -> None:
        super().__init__(message, hint=hint, code=code)
        self.status = status


class Client:
    """One collector. `deadline_s` bounds each call as a whole; a call can be given less.

    Every call raises Unavailable (nobody there, too late, not now, not a collector) or ClientError, and nothing else.
    Made and used by one thread at a time: the front end while it starts, the heartbeat's thread afterwards. What was
    sent last is kept in `state_dir`, if there is one.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        deadline_s: float,
        *,
        ca_file: str | None = None,
        state_dir: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._netloc, self._path = parts.netloc, parts.path.rstrip("/")
        self._token = token
        self._deadline_s = deadline_s
        self._ca_file = ca_file
        self._tls: ssl.SSLContext | None = None
        self._url, self._state_dir = url.rstrip("/"), state_dir

    def register(self, body: Mapping[str, Any], deadline_s: float | None = None) -> dict[str, Any]:
        """`POST /api/v1/engines/register`: creates or reads the pin."""
        return self._post(Kind.REGISTRATION, "/api/v1/engines/register", body, deadline_s)

    def heartbeat(
        self, registration_id: str, body: Mapping[str, Any], deadline_s: float | None = None
    ) -> dict[str, Any]:
        """`POST /api/v1/engines/{registration_id}/heartbeat`. ClientError with status 404: register again."""
        path = f"/api/v1/engines/{quote(registration_id, safe='')}/heartbeat"
        return self._post(Kind.HEARTBEAT, path, body, deadline_s)

    def _post(self, kind: Kind, path: str, body: Mapping[str, Any], deadline_s: float | None) -> dict[str, Any]:
        payload = json.dumps(body).encode()
        sent = LastSent(self._state_dir, kind, self._url + path)
        try:
            answer = self._answered(path, payload, deadline_s)
        except KvflagsError as error:
            refused = isinstance(error, ClientError)
            sent.note(payload, Result.REFUSED if refused else Result.LATER, error.message)
            raise
        else:
            sent.note(payload, Result.TAKEN)
            return answer
        finally:
            sent.write(at_once=True)

    def _answered(self, path: str, payload: bytes, deadline_s: float | None) -> dict[str, Any]:
        deadline = Deadline(self._deadline_s if deadline_s is None else deadline_s)
        try:
            status, answer = self._exchange(self._request(path, payload), deadline)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(
                f"The collector at {self._netloc} does not answer: {error or type(error).__name__}",
                hint="Is KVFLAGS_COLLECTOR_URL right, and `kvflags serve` running there?",
            ) from error
        return self._judged(status, answer)

    def _request(self, path: str, payload: bytes) -> bytes:
        headers = [
            f"POST {self._path}{path} HTTP/1.1",
            f"Host: {self._netloc}",
            f"User-Agent: kvflags/{__version__}",
            "Accept: application/json",
            "Content-Type: application/json",
            f"Content-Length: {len(payload)}",
            "Connection: close",
        ]
        if self._token:
            headers.append(f"Authorization: Bearer {self._token}")
        return "\r\n".join([*headers, "", ""]).encode("latin-1") + payload

    def _exchange(self, request: bytes, deadline: Deadline) -> tuple[int, bytes]:
        with self._connected(deadline) as connection:
            send_all(connection, request, deadline)
            # HTTPResponse asks a socket for nothing but `makefile`.
            response = http.client.HTTPResponse(cast("socket.socket", _Answer(connection, deadline)), method="POST")
            response.begin()
            return response.status, response.read(_MAX_ANSWER)

    def _connected(self, deadline: Deadline) -> socket.socket:
        plain = open_socket(self._host, self._port, deadline)
        if not self._secure:
            return plain
        try:
            plain.settimeout(deadline.left())
            # Python bounds the handshake as a whole by the socket's timeout, so a trickle cannot stretch it.
            return self._context().wrap_socket(plain, server_hostname=self._host)
        except BaseException:
            plain.close()
            raise

    def _context(self) -> ssl.SSLContext:
        # Reading the system's certificates takes about 20 ms: once, and only where they are needed.
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=self._ca_file)
        return self._tls

    def _judged(self, status: int, answer: bytes) -> dict[str, Any]:
        document = _json(answer)
        if status == 200 and document is not None:
            return document
        error = (document or {}).get("error")
        said = error if isinstance(error, dict) else {}
        if status == 200 or status in _NOT_NOW:
            what = f"answered {status}" if status != 200 else "answered with something that is not JSON"
            raise Unavailable(
                f"The collector at {self._netloc} {what}", hint=str(said.get("hint", "")), code=_code(said, status)
            )
        raise ClientError(
            status,
            str(said.get("message", f"The collector at {self._netloc} answered {status}")),
            hint=str(said.get("hint", _HINTS.get(status, ""))),
            code=_code(said, status),
        )


_HINTS = {
    401: "Set KVFLAGS_TOKEN to a token with the scope `ingest`",
    403: "The token in KVFLAGS_TOKEN lacks the scope `ingest`",
}


def _json(answer: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(answer)
    # A deeply nested answer ends in a RecursionError.
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _code(said: Mapping[str, Any], status: int) -> ErrorCode | None:
    if status in {401, 403}:
        return ErrorCode.UNAUTHORIZED
    return ErrorCode(said["code"]) if said.get("code") in tuple(ErrorCode) else None


class _Answer(io.RawIOBase):
    """What comes over the wire, as a file: a read gets what is left of the deadline, all together the bound."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        super().__init__()
        self._connection, self._deadline = connection, deadline
        self._room = _MAX_ANSWER

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (typeshed has no public name for a writable buffer)
        self._connection.settimeout(self._deadline.left())
        read = self._connection.recv_into(buffer)
        self._room -= read
        if self._room < 0:
            raise ValueError(f"the answer is larger than {_MAX_ANSWER} bytes")
        return read
