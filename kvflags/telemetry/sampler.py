# SPDX-License-Identifier: Apache-2.0
"""The operator's sampler, with two things added: errors are always kept, and a kept span says what it stands for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace.span import TraceState

from kvflags.telemetry.attributes import Name

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind
    from opentelemetry.util.types import Attributes

__all__ = ["TransferSampler", "rate"]

# OpenTelemetry's probability sampling works on the low 56 bits of the trace id.
_RANDOM_BITS = 56
_ALL = 1 << _RANDOM_BITS


def rate(environ: Mapping[str, str]) -> float:
    """The share of transfers to export, from OTEL_TRACES_SAMPLER and its argument. Anything unknown means all.

    A transfer has no parent, so the `parentbased_` samplers come down to their roots.
    """
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower().removeprefix("parentbased_")
    if name == "always_off":
        return 0.0
    if name != "traceidratio":
        return 1.0
    try:
        share = float(environ.get("OTEL_TRACES_SAMPLER_ARG", ""))
    except ValueError:
        return 1.0
    return min(max(share, 0.0), 1.0) if math.isfinite(share) else 1.0


class TransferSampler(Sampler):
    """Keeps a share of the transfers, whole (its ranks share a trace id), and every error.

    The SDK's own ratio sampler keeps low ids and says nothing of its rate; the consistent rule (randomness at or over a
    threshold) keeps high ones, and its threshold in `tracestate` lets the roll-ups weigh by it.
    """

    def __init__(self, share: float) -> None:
        self._threshold = _ALL - round(share * _ALL)
        # 100 % needs no mark; below it every kept span has one, an error with weight 1.
        self._kept = _state(self._threshold) if share < 1 else None
        self._error = _state(0) if share < 1 else None

    def should_sample(  # noqa: PLR0917 (the SDK's signature)
        self,
        parent_context: Context | None,  # noqa: ARG002
        trace_id: int,
        name: str,  # noqa: ARG002
        kind: SpanKind | None = None,  # noqa: ARG002
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,  # noqa: ARG002
        trace_state: TraceState | None = None,  # noqa: ARG002
    ) -> SamplingResult:
        if attributes and Name.ERROR_TYPE in attributes:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes, self._error)
        if trace_id % _ALL >= self._threshold:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes, self._kept)
        return SamplingResult(Decision.DROP)

    def get_description(self) -> str:
        return f"kvflags{{threshold={self._threshold:014x}, errors always}}"


def _state(threshold: int) -> TraceState:
    # 14 hexadecimal digits, trailing zeros left out.
    return TraceState([("ot", "th:" + (f"{threshold:014x}".rstrip("0") or "0"))])
