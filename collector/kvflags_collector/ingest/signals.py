# SPDX-License-Identifier: Apache-2.0
"""The three signals of OTLP: their names on both transports, their messages, and how a success is worded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from kvflags_collector.ingest.limits import Refused

__all__ = ["LOGS", "METRICS", "SIGNALS", "TRACES", "Signal"]

# The specification has senders keep to 4 MiB for answers; ours is a few sentences, and stays so whatever was sent.
_LONGEST_MESSAGE = 4096


@dataclass(frozen=True, slots=True)
class Signal:
    """`items`: what a request holds, in the plural. `rejected`: the field of `partial_success` that counts them."""

    name: str
    items: str
    rejected: str
    request: type[Message]
    response: type[Message]

    @property
    def path(self) -> str:
        """Where it is sent over HTTP."""
        return f"/v1/{self.name}"

    @property
    def method(self) -> str:
        """What is called over gRPC."""
        [service] = self.request.DESCRIPTOR.file.services_by_name.values()
        return f"/{service.full_name}/Export"

    def parse(self, body: bytes) -> Message:
        """The request in a body of protobuf.

        Raises:
            Refused: 400, where it is no such message.
        """
        try:
            return self.request.FromString(body)
        except DecodeError as problem:
            name = self.request.DESCRIPTOR.name
            raise Refused(400, f"the body is not an {name}: {problem}") from None

    def answer(self, rejected: Counter[str]) -> Message:
        """The response. `partial_success` stays unset where everything was taken: clients read it as a warning."""
        answer = self.response()
        if rejected:
            setattr(answer.partial_success, self.rejected, rejected.total())
            parts = ", ".join(f"{number} {reason}" for reason, number in sorted(rejected.items()))
            answer.partial_success.error_message = f"{self.items} not stored: {parts}"[:_LONGEST_MESSAGE]
        return answer


TRACES = Signal("traces", "spans", "rejected_spans", ExportTraceServiceRequest, ExportTraceServiceResponse)
METRICS = Signal(
    "metrics", "data points", "rejected_data_points", ExportMetricsServiceRequest, ExportMetricsServiceResponse
)
LOGS = Signal("logs", "log records", "rejected_log_records", ExportLogsServiceRequest, ExportLogsServiceResponse)
SIGNALS = (TRACES, METRICS, LOGS)
