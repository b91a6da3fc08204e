# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""What an engine of this machine sent last, decoded: OTLP as its JSON mapping has it, the rest as the JSON it is."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from kvflags.errors import UsageError
from kvflags.sent import Kind, Payload, read

__all__ = ["items", "last_sent"]

Json = dict[str, Any]

# Where the items of a body lie.
_ITEMS = {
    Kind.TRACES: ("resourceSpans", "scopeSpans", "spans"),
    Kind.METRICS: ("resourceMetrics", "scopeMetrics", "metrics"),
}
# Bytes to protobuf, hexadecimal in OTLP's JSON.
_IDS = frozenset({"traceId", "spanId"})


def last_sent(folder: str | None, kinds: Iterable[Kind]) -> Json:
    """The document of `kvflags telemetry show`: one payload for each kind that was sent, in this order.

    UsageError where there is no folder, or what lies there cannot be read or is not ours.
    """
    if folder is None:
        raise UsageError("there is no folder for state", hint="set KVFLAGS_STATE_DIR as the engines have it")
    return {"folder": folder, "payloads": [told for kind in kinds if (told := _told(folder, kind))]}


def items(kind: str, body: Json) -> list[Json]:
    """The spans or the metrics in a body; none in a registration or a heartbeat."""
    level: list[Json] = [body]
    for name in _ITEMS.get(Kind(kind), ()):
        level = [below for one in level for below in one.get(name, ())]
    return level if Kind(kind) in _ITEMS else []


def _told(folder: str, kind: Kind) -> Json | None:
    try:
        payload = read(folder, kind)
        body = _decoded(payload) if payload else None
    except (OSError, ValueError, RecursionError) as error:
        says = getattr(error, "strerror", None) or error
        hint = "run this as the user that the engines run as"
        raise UsageError(f"the last {kind} in {folder} cannot be read: {says}", hint=hint) from error
    if payload is None:
        return None
    count = len(items(kind, body)) if body and kind in _ITEMS else None
    return asdict(payload) | {"items": count, "body": body}


def _decoded(payload: Payload) -> Json | None:
    if payload.body is None:
        return None
    if payload.kind not in _ITEMS:
        body: Json = json.loads(payload.body)
        return body
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    try:
        tree: Json = MessageToDict(_message(payload.kind).FromString(payload.body))
    except DecodeError as error:
        raise ValueError(f"it is no OTLP: {error}") from error
    for span in items(payload.kind, tree):
        span.update({name: base64.b64decode(span[name]).hex() for name in _IDS & span.keys()})
    return tree


def _message(kind: str) -> Any:  # noqa: ANN401 - protobuf's own classes, which have no types
    if kind == Kind.METRICS:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        return ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    return ExportTraceServiceRequest
