# SPDX-License-Identifier: Apache-2.0
"""A refusal in the words of each transport: the HTTP status, the gRPC code, and the `google.rpc.Status` of both."""

from __future__ import annotations

import random

from google.protobuf.duration_pb2 import Duration
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status

from kvflags_collector.ingest.limits import Refused

__all__ = ["retry_info", "retry_seconds", "status_of"]

_CODES = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    405: Code.UNIMPLEMENTED,
    408: Code.DEADLINE_EXCEEDED,
    413: Code.RESOURCE_EXHAUSTED,
    415: Code.INVALID_ARGUMENT,
    500: Code.INTERNAL,
    503: Code.UNAVAILABLE,
}


def retry_seconds(refusal: Refused) -> int | None:
    """How long to wait before the same request is sent again; None where it never helps.

    Clients give up an export after 10 s in all, so a longer wait would lose the batch; the jitter spreads a fleet.
    """
    return random.randint(1, 3) if refusal.status == 503 else None  # noqa: S311 - no secret


def retry_info(seconds: int) -> RetryInfo:
    """The wait as gRPC has it."""
    return RetryInfo(retry_delay=Duration(seconds=seconds))


def status_of(refusal: Refused, wait_s: int | None = None) -> Status:
    """The body of the answer, with what was wrong or, where the client shall come back, when."""
    status = Status(code=_CODES[refusal.status], message=refusal.message)
    if refusal.status == 400:
        violation = BadRequest.FieldViolation(field="body", description=refusal.message)
        status.details.add().Pack(BadRequest(field_violations=[violation]))
    if wait_s is not None:
        status.details.add().Pack(retry_info(wait_s))
    return status
