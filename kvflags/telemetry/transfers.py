# SPDX-License-Identifier: Apache-2.0
"""Transfers become OpenTelemetry spans, through a provider of our own: the global one is neither used nor replaced.

Imported by the export thread only, since the SDK takes a fifth of a second to import.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import SpanKind, Status, StatusCode

from kvflags import __version__
from kvflags.telemetry.attributes import SCOPE_NAME, SPAN_NAME, Name
from kvflags.telemetry.resource import resource
from kvflags.telemetry.sampler import TransferSampler, rate

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from kvflags.telemetry.labels import Labels
    from kvflags.telemetry.records import Transfer

__all__ = ["Spans", "encode", "span_id", "trace_id"]


def trace_id(engine_id: str, transfer: Transfer) -> int:
    """The id that the ranks of one transfer share without talking to each other."""
    parts = (engine_id, transfer.request, transfer.remote_engine, transfer.remote_request)
    return _hash(16, "\0".join(parts))


def span_id(trace: int, rank: int, start_ns: int) -> int:
    """One rank's part of it. The start is in it because a request id may come again after a restart."""
    return _hash(8, f"{trace:x}\0{rank}\0{start_ns}")


def _hash(size: int, text: str) -> int:
    # 0 would be an invalid id.
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "big") or 1


def encode(spans: Iterable[ReadableSpan]) -> bytes:
    """The body of an OTLP request. Bodies may be joined end to end: that is how protobuf merges repeated fields."""
    body: bytes = encode_spans(list(spans)).SerializeToString()
    return body


class Spans:
    """Builds the spans of one worker. One thread only; the environment is read once, when it is made."""

    def __init__(self, labels: Labels, environ: Mapping[str, str] = os.environ) -> None:
        self._labels = labels
        self._ids = _Ids()
        self._ended = _Ended()
        provider = TracerProvider(
            sampler=TransferSampler(rate(environ)),
            resource=resource(labels),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        provider.add_span_processor(self._ended)
        self._tracer = provider.get_tracer(SCOPE_NAME, __version__)

    def build(self, transfers: Iterable[Transfer]) -> list[ReadableSpan]:
        """Those that the sampler keeps. About 45 us each (110 to encode), so the caller hands over few at a time."""
        for transfer in transfers:
            self._build(transfer)
        return self._ended.take()

    def _build(self, transfer: Transfer) -> None:
        self._ids.trace = trace_id(self._labels.engine_id, transfer)
        self._ids.span = span_id(self._ids.trace, self._labels.rank, transfer.start_ns)
        span = self._tracer.start_span(
            SPAN_NAME, kind=SpanKind.CLIENT, attributes=self._attributes(transfer), start_time=transfer.start_ns
        )
        if transfer.kind:
            span.set_status(Status(StatusCode.ERROR, transfer.kind))
        span.end(transfer.end_ns)

    def _attributes(self, transfer: Transfer) -> dict[str, AttributeValue]:
        values: dict[str, AttributeValue] = {
            **self._labels.span,
            Name.BYTES: transfer.bytes,
            Name.DESCRIPTORS: transfer.descriptors,
            Name.BLOCKS: transfer.blocks,
            Name.POST_TIME: transfer.post_ns,
            Name.REMOTE_ENGINE: transfer.remote_engine,
        }
        if transfer.kind:
            values[Name.ERROR_TYPE] = transfer.kind
        if transfer.detail:
            values[Name.FAILURE] = transfer.detail
        if transfer.layout_mismatch:
            values[Name.LAYOUT_MISMATCH] = True
        return values


class _Ids(IdGenerator):
    """Hands out the ids that the next span is to have."""

    trace = 1
    span = 1

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span

    def is_trace_id_random(self) -> bool:
        # A hash is not random, but uniform in every bit, which is all that samplers rely on.
        return True


class _Ended(SpanProcessor):
    """Collects what the sampler kept."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def take(self) -> list[ReadableSpan]:
        spans, self._spans = self._spans, []
        return spans
