# SPDX-License-Identifier: Apache-2.0
"""OTLP/HTTP: the routes. Protobuf or JSON, gzip or not; 200 means committed. Runs on the server's event loop.

Every refusal carries a `google.rpc.Status`, in the encoding of the request, as the specification asks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from kvflags_collector.ingest.limits import Refused, read_body
from kvflags_collector.ingest.receiver import Receiver
from kvflags_collector.ingest.refusals import retry_seconds, status_of
from kvflags_collector.ingest.signals import SIGNALS, Signal

__all__ = ["refuse", "routes"]

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
_ANY_METHOD = ["DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT"]


def routes(receiver: Receiver) -> list[Route]:
    """`/v1/traces`, `/v1/metrics`, `/v1/logs`, and a clear no for the signals that are not received."""
    known = [Route(signal.path, _endpoint(receiver, signal), methods=_ANY_METHOD) for signal in SIGNALS]
    return [*known, Route("/v1/{signal}", _not_received, methods=_ANY_METHOD)]


def _endpoint(receiver: Receiver, signal: Signal) -> Callable[[Request], Awaitable[Response]]:
    async def export(request: Request) -> Response:
        try:
            answer = await _receive(receiver, signal, request)
        except Refused as refusal:
            receiver.instruments.refused(signal.name, refusal.status)
            return refuse(request, refusal)
        except ClientDisconnect:
            return Response(status_code=400)
        return _encoded(request, answer)

    return export


async def _receive(receiver: Receiver, signal: Signal, request: Request) -> Message:
    zipped = _check_headers(request, signal)
    receiver.admit()
    declared = request.headers.get("content-length", "")
    with receiver.budget.hold() as held:
        body = await read_body(request.stream(), int(declared) if declared.isdigit() else 0, receiver.limits, held)
        return await receiver.take(signal, body, held, zipped=zipped, as_json=_is_json(request))


def _check_headers(request: Request, signal: Signal) -> bool:
    """Whether the body is gzip.

    Raises:
        Refused: 405 or 415, before a byte of the body is read.
    """
    if request.method != "POST":
        raise Refused(405, f"{signal.items} are sent with POST")
    if _media_type(request) not in (_PROTOBUF, _JSON):
        raise Refused(415, f"Content-Type must be {_PROTOBUF} or {_JSON}")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("gzip", "identity", "none", ""):
        raise Refused(415, "Content-Encoding must be gzip, or absent")
    return encoding == "gzip"


def refuse(request: Request, refusal: Refused) -> Response:
    """The answer to a request that is not taken: a `google.rpc.Status`, in the request's encoding."""
    wait_s = retry_seconds(refusal)
    headers = {} if wait_s is None else {"Retry-After": str(wait_s)}
    if refusal.status == 405:
        headers["Allow"] = "POST"
    return _encoded(request, status_of(refusal, wait_s), refusal.status, headers)


def _encoded(request: Request, message: Message, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """In the encoding of the request; protobuf where that was neither."""
    if _is_json(request):
        return Response(MessageToJson(message, indent=None), status, headers, _JSON)
    return Response(message.SerializeToString(), status, headers, _PROTOBUF)


async def _not_received(request: Request) -> Response:
    signal, known = request.path_params["signal"], ", ".join(signal.path for signal in SIGNALS)
    return refuse(request, Refused(404, f"this collector receives {known}, not /v1/{signal[:64]}"))


def _is_json(request: Request) -> bool:
    return _media_type(request) == _JSON


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
