# SPDX-License-Identifier: Apache-2.0
"""One OTLP/HTTP request: where to, with which credentials, and what the answer means.

The SDK's exporter is not used for this: it retries inside a call for 10 s, which no shutdown of ours may wait for, and
it takes its headers from the environment, where vLLM and others leave theirs for somebody else.
"""

from __future__ import annotations

import gzip
import math
import ssl
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Literal
from urllib.parse import unquote, urlsplit

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from kvflags import __version__
from kvflags.environ import Reader
from kvflags.sent import Kind, LastSent, Result
from kvflags.telemetry.answer import Answer, Outcome, Way
from kvflags.telemetry.shelf import Shelf

__all__ = ["Signal", "Wire", "way"]

Signal = Literal["traces", "metrics"]

_TIMEOUT_S = 10.0

# What no retry can change: the body cannot be read, or is too large. All else may pass, an expired token included.
_HOPELESS = frozenset({400, 413, 415, 422})


_RESULTS = {Outcome.STORED: Result.TAKEN, Outcome.LATER: Result.LATER, Outcome.REFUSED: Result.REFUSED}


def way(url: str, token: str | None, environ: Mapping[str, str], signal: Signal = "traces") -> Way:
    """The one for this address: `file:` is this machine's own shelf."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return Wire(url, token, environ, signal)
    return Shelf(unquote(parts.path), _folder(environ), signal)


class Wire:
    """A kept connection to `url` + /v1/`signal`. One thread only.

    Of the environment it honours timeout (s), compression and certificates of OTEL_EXPORTER_OTLP_* (and the signal's
    own variants, such as TRACES_), never endpoint or headers. What it sent last is kept in the folder for state.
    """

    def __init__(self, url: str, token: str | None, environ: Mapping[str, str], signal: Signal = "traces") -> None:
        parts = urlsplit(url)
        self._path = f"{parts.path.rstrip('/')}/v1/{signal}"
        read = partial(_otlp, environ, signal)
        self._open = _opener(parts.scheme, parts.hostname or "localhost", parts.port, read)
        self._headers = {"Content-Type": "application/x-protobuf", "User-Agent": f"kvflags/{__version__}"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._compress = _compression(read("COMPRESSION"), self._headers)
        self._connection: HTTPConnection | None = None
        self.timeout_s = _positive(read("TIMEOUT"))
        self._sent = LastSent(_folder(environ), Kind(signal), f"{url.rstrip('/')}/v1/{signal}")

    def send(self, body: bytes) -> Answer:
        """Send it once. Every failure is an answer; nothing is raised but programming errors."""
        try:
            answer = self._send_anew(self._compress(body))
        except (OSError, HTTPException) as error:
            self._hang_up()
            answer = Answer(Outcome.LATER, says=f"{type(error).__name__}: {error}")
        self._sent.note(body, _RESULTS[answer.outcome], answer.says)
        return answer

    def rest(self) -> None:
        """Nothing more is to be sent for now: time to write down what was."""
        self._sent.write()

    def _send_anew(self, body: bytes) -> Answer:
        """On the kept connection; on a new one where the collector closed that, as servers do after some idle seconds.

        So an engine's last spans need no second try, for which it has no time. What arrived twice is known as a repeat.
        """
        kept = self._connection is not None
        try:
            return self._send(body)
        except ConnectionError:
            if not kept:
                raise
        self._hang_up()
        return self._send(body)

    def _send(self, body: bytes) -> Answer:
        connection = self._connection or self._open()
        self._connection = connection
        connection.timeout = self.timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(self.timeout_s)
        connection.request("POST", self._path, body, self._headers)
        response = connection.getresponse()
        content = response.read()
        if response.status == 200:
            return Answer(Outcome.STORED, _rejected(content))
        outcome = Outcome.REFUSED if response.status in _HOPELESS else Outcome.LATER
        return Answer(outcome, says=f"HTTP {response.status} {response.reason}")

    def close(self) -> None:
        """The end: write down what was sent last, and give up the connection."""
        self._sent.write(at_once=True)
        self._hang_up()

    def _hang_up(self) -> None:
        # The next `send` opens another connection.
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _folder(environ: Mapping[str, str]) -> str | None:
    return Reader(environ).state_dir("KVFLAGS_STATE_DIR")


def _otlp(environ: Mapping[str, str], signal: str, name: str) -> str:
    own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}")
    return (own or environ.get(f"OTEL_EXPORTER_OTLP_{name}") or "").strip()


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return _TIMEOUT_S
    return value if math.isfinite(value) and value > 0 else _TIMEOUT_S


def _compression(name: str, headers: dict[str, str]) -> Callable[[bytes], bytes]:
    if name.lower() not in {"gzip", "deflate"}:
        return bytes
    headers["Content-Encoding"] = name.lower()
    return gzip.compress if name.lower() == "gzip" else zlib.compress


def _opener(scheme: str, host: str, port: int | None, read: Callable[[str], str]) -> Callable[[], HTTPConnection]:
    if scheme != "https":
        return lambda: HTTPConnection(host, port)
    context = ssl.create_default_context(cafile=read("CERTIFICATE") or None)
    if certificate := read("CLIENT_CERTIFICATE"):
        context.load_cert_chain(certificate, read("CLIENT_KEY") or None)
    return lambda: HTTPSConnection(host, port, context=context)


def _rejected(content: bytes) -> int:
    # The other signals' answers have the same fields under the same numbers.
    try:
        return int(ExportTraceServiceResponse.FromString(content).partial_success.rejected_spans)
    except Exception:  # noqa: BLE001 (protobuf's DecodeError; whatever else it says, the batch was accepted)
        return 0
