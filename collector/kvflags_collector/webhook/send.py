# SPDX-License-Identifier: Apache-2.0
"""One delivery over HTTP: signed as the Standard Webhooks specification has it, and led nowhere else."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kvflags import __version__
from kvflags.errors import UsageError

__all__ = ["Target", "send", "signature"]

# A receiver has to keep what it is told and answer; what takes longer it does afterwards.
_TIMEOUT_S = 5.0
# In all: one that sends a byte now and then is never silent for as long as that.
_DEADLINE_S = 10.0
_PREFIX = "whsec_"
_LEAST_SECRET = 16


@dataclass(frozen=True, slots=True)
class Target:
    """Where to, with which secret: text, or base64 after `whsec_`. Any host is allowed: operators run both ends.

    UsageError for what is no http(s) address, and for a secret that could be guessed.
    """

    url: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        if problem := _problem(self.url):
            # The address is not repeated: what is wrong with it may be a password in it.
            raise UsageError(f"--webhook: {problem}", hint="such as https://ci.example.net/hooks/kvflags")
        if len(self.key) < _LEAST_SECRET:
            says = f"the webhook's secret has {_LEAST_SECRET} bytes at least"
            raise UsageError(says, hint="KVFLAGS_WEBHOOK_SECRET=$(openssl rand -hex 32)")

    @property
    def key(self) -> bytes:
        if not self.secret.startswith(_PREFIX):
            return self.secret.encode()
        try:
            return base64.b64decode(self.secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            return b""


def send(target: Target, name: str, body: bytes, now_s: int) -> str:
    """Why it was not taken, in words; empty when it was (2xx). Never raises. A redirect is a failure, and not followed.

    Blocks for 5 s at most while nothing comes, and for 10 s in all once connected.
    """
    parts = urlsplit(target.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    late = threading.Event()
    try:
        connection.connect()
        with _cut_after(_DEADLINE_S, connection.sock, late):
            connection.request("POST", path, body, _headers(target, name, body, now_s))
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        # What the reader finds on a connection that was cut depends on what the receiver was just sending.
        return f"no whole answer in {_DEADLINE_S:g} s" if late.is_set() else f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    return "" if 200 <= status < 300 else f"it answered {status}"


def signature(key: bytes, name: str, at_s: int, body: bytes) -> str:
    """`v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`."""
    signed = hmac.new(key, f"{name}.{at_s}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


@contextmanager
def _cut_after(seconds: float, sock: socket.socket, late: threading.Event) -> Iterator[None]:
    """Whoever reads from it then finds it at its end, or reset; `late` is set before."""

    def cut() -> None:
        late.set()
        # Gone already, perhaps. Not by TLS's own method, which takes the state of the connection from under the reader.
        with suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _headers(target: Target, name: str, body: bytes, now_s: int) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "User-Agent": f"kvflags/{__version__}",
        "webhook-id": name,
        "webhook-timestamp": str(now_s),
        "webhook-signature": signature(target.key, name, now_s, body),
    }


def _problem(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        return "it is no http(s) address"
    return "an address holds no user name or password" if parts.username or parts.password else ""
