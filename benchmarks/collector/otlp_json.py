# SPDX-License-Identifier: Apache-2.0
"""OTLP/JSON to protobuf: kvflags' converter beside protobuf's own, which does not even know OTLP's rules for ids.

CPU time of one thread, 512 spans a body with 15 attributes each. `--repeats` bodies of each kind; prints medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

from google.protobuf.json_format import MessageToDict, ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from kvflags_collector.ingest.from_json import from_json

SPANS, ATTRIBUTES = 512, 15


def bodies() -> tuple[bytes, bytes]:
    """The same request with ids in hexadecimal, as OTLP wants them, and in base64, as protobuf does."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(1, SPANS + 1):
        span = scope.spans.add(trace_id=number.to_bytes(16, "big"), span_id=number.to_bytes(8, "big"), kind=3)
        span.name, span.start_time_unix_nano, span.end_time_unix_nano = "kv.transfer", time.time_ns(), time.time_ns()
        for at in range(ATTRIBUTES):
            value = span.attributes.add(key=f"kvflags.transfer.attribute{at}").value
            if at % 2:
                value.int_value = at * number
            else:
                value.string_value = f"a value of the usual size {at}"
    document = MessageToDict(request, use_integers_for_enums=True)
    base64 = json.dumps(document).encode()
    for span, given in zip(document["resourceSpans"][0]["scopeSpans"][0]["spans"], scope.spans, strict=True):
        span["traceId"], span["spanId"] = given.trace_id.hex(), given.span_id.hex()
    return json.dumps(document).encode(), base64


def rate(convert: Callable[[], object], repeats: int) -> float:
    """Spans per CPU-second, the median of `repeats` conversions."""
    took = []
    for _ in range(repeats):
        began = time.thread_time()
        convert()
        took.append(time.thread_time() - began)
    return SPANS / statistics.median(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    hexadecimal, base64 = bodies()
    ours = rate(lambda: from_json(hexadecimal, ExportTraceServiceRequest), repeats)
    theirs = rate(
        lambda: ParseDict(json.loads(base64), ExportTraceServiceRequest()).SerializeToString(), repeats // 4 or 1
    )
    print(f"{len(hexadecimal) / SPANS:.0f} bytes a span")
    print(f"kvflags from_json        {ours:>9,.0f} spans/CPU-s")
    print(f"json_format.ParseDict    {theirs:>9,.0f} spans/CPU-s  ratio {ours / theirs:.1f}")


if __name__ == "__main__":
    main()
