# SPDX-License-Identifier: Apache-2.0
"""How many spans a large request holds, counted before it is read.

An empty span takes two bytes on the wire and some 400 in columns, so the bound on a body's bytes alone would let one
client have 64 MiB become 13 GB.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from kvflags_collector.ingest.limits import MIB, Refused
from kvflags_collector.ingest.spans.schema import OUTLINE

__all__ = ["MOST", "check"]

# Resources, scopes and spans together; 64 MiB of our spans are 140,000.
MOST = 500_000

_Outline = GetMessageClass(OUTLINE)


def check(body: bytes) -> None:
    """Count the spans of a body above 1 MiB; smaller ones cannot do harm.

    Raises:
        Refused: 413, where they are more than MOST; 400, where the body is no request.
    """
    if len(body) <= MIB:
        return
    try:
        resources = _Outline.FromString(body).first
        number = _within(len(resources))
        for resource in resources:
            scopes = _Outline.FromString(resource).second
            number = _within(number + len(scopes))
            for scope in scopes:
                number = _within(number + len(_Outline.FromString(scope).second))
    except DecodeError as problem:
        raise Refused(400, f"the body is not an ExportTraceServiceRequest: {problem}") from None


def _within(number: int) -> int:
    if number > MOST:
        raise Refused(413, f"more than {MOST:,} spans: send fewer in one request")
    return number
