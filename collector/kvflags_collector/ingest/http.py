# SPDX-License-Identifier: Apache-2.0
"""OTLP/HTTP for traces: the routes. Protobuf, gzip or not; 200 means committed. Runs on the server's event loop.

Every refusal carries a `google.rpc.Status`, in the encoding of the request, as the specification asks.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from google.protobuf.json_format import MessageToJson  # type: ignore[import-untyped]
from google.rpc.code_pb2 import Code  # type: ignore[import-untyped]
from google.rpc.error_details_pb2 import BadRequest  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from kvflags_collector.ingest.decode import Decoded, decode
from kvflags_collector.ingest.limits import Budget, Limits, Refused, inflate, read_body
from kvflags_collector.ingest.writer import Writer

__all__ = ["routes"]

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
_CODES = {
    400: Code.INVALID_ARGUMENT,
    404: Code.NOT_FOUND,
    405: Code.UNIMPLEMENTED,
    408: Code.DEADLINE_EXCEEDED,
    413: Code.RESOURCE_EXHAUSTED,
    415: Code.INVALID_ARGUMENT,
    503: Code.UNAVAILABLE,
}
_ANY_METHOD = ["DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT"]


def routes(writer: Writer, limits: Limits | None = None, clock: Callable[[], int] = time.time_ns) -> list[Route]:
    """`/v1/traces`, and a clear no for the signals that are not received. `clock` gives the time in ns since 1970."""
    receiver = _Receiver(writer, limits or Limits(), clock)
    return [
        Route("/v1/traces", receiver.traces, methods=_ANY_METHOD),
        Route("/v1/{signal}", _not_received, methods=_ANY_METHOD),
    ]


class _Receiver:
    def __init__(self, writer: Writer, limits: Limits, clock: Callable[[], int]) -> None:
        self._writer = writer
        self._limits = limits
        self._clock = clock
        self._budget = Budget(limits.in_flight)
        # Never on the loop: a body of 64 MiB takes seconds. Two, so that small ones get past such a one.
        self._decoders = ThreadPoolExecutor(2, thread_name_prefix="kvflags-decode")

    async def traces(self, request: Request) -> Response:
        try:
            decoded = await self._receive(request)
        except Refused as refusal:
            return _refuse(request, refusal)
        except ClientDisconnect:
            return Response(status_code=400)
        return Response(_success(decoded).SerializeToString(), media_type=_PROTOBUF)

    async def _receive(self, request: Request) -> Decoded:
        zipped = _check_headers(request)
        declared = request.headers.get("content-length", "")
        with self._budget.hold() as held:
            body = await read_body(request.stream(), int(declared) if declared.isdigit() else 0, self._limits, held)
            loop = asyncio.get_running_loop()
            decoded = await loop.run_in_executor(self._decoders, self._decode, body, zipped)
            held.add(max(0, decoded.size - len(body)))
            if decoded.rows:
                await self._writer.submit(decoded)
        return decoded

    def _decode(self, body: bytes, zipped: bool) -> Decoded:
        return decode(inflate(body, self._limits) if zipped else body, self._clock())


def _check_headers(request: Request) -> bool:
    """Whether the body is gzip.

    Raises:
        Refused: 405 or 415, before a byte of the body is read.
    """
    if request.method != "POST":
        raise Refused(405, "spans are sent with POST")
    if _media_type(request) != _PROTOBUF:
        raise Refused(415, f"Content-Type must be {_PROTOBUF}")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("gzip", "identity", "none", ""):
        raise Refused(415, "Content-Encoding must be gzip, or absent")
    return encoding == "gzip"


def _success(decoded: Decoded) -> ExportTraceServiceResponse:
    """`partial_success` stays unset where every span was taken; clients read it as a warning."""
    answer = ExportTraceServiceResponse()
    if decoded.rejected:
        answer.partial_success.rejected_spans = decoded.rejected.total()
        parts = ", ".join(f"{number} {reason}" for reason, number in sorted(decoded.rejected.items()))
        answer.partial_success.error_message = f"spans not stored: {parts}"
    return answer


def _refuse(request: Request, refusal: Refused) -> Response:
    status = Status(code=_CODES[refusal.status], message=refusal.message)
    if refusal.status == 400:
        violation = BadRequest.FieldViolation(field="body", description=refusal.message)
        status.details.add().Pack(BadRequest(field_violations=[violation]))
    headers = {}
    if refusal.status == 503:
        # Clients give up an export after 10 s in all, so a longer wait would lose the batch; jitter spreads the fleet.
        headers["Retry-After"] = str(random.randint(1, 3))  # noqa: S311 - no secret
    if refusal.status == 405:
        headers["Allow"] = "POST"
    if _media_type(request) == _JSON:
        return Response(MessageToJson(status), refusal.status, headers, _JSON)
    return Response(status.SerializeToString(), refusal.status, headers, _PROTOBUF)


async def _not_received(request: Request) -> Response:
    signal = request.path_params["signal"]
    return _refuse(request, Refused(404, f"this collector receives /v1/traces, not /v1/{signal}"))


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
