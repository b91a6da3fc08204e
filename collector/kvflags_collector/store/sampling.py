# SPDX-License-Identifier: Apache-2.0
"""How many transfers a sampled one stands for: OpenTelemetry's threshold in `tracestate`, `ot=th:…`. Pure.

A threshold T keeps the trace ids whose low 56 bits R are at or above it, each with probability p = (2^56 - T) / 2^56,
so what is kept stands for w = 1/p transfers. Roll-ups count in integers, so w is rounded, up or down, by where R lies
between T and 2^56: uniform given that it was kept, so the weights average w exactly, always alike for a span.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["WEIGHT_MAX", "weight"]

_ALL = 1 << 56
_DIGITS = 14
# Under one in 65,536 nobody samples; a span that says so would outweigh a fleet.
WEIGHT_MAX = 1 << 16
# Members of `tracestate` are separated by commas, fields of ours by semicolons. An explicit rv replaces the trace id.
_MEMBER = re.compile(r"(?:^|,)[ \t]*ot=([^,]*)")
_FIELD = re.compile(r"(?:^|;)(th|rv):([0-9a-f]{1,14})(?=[;\s]|$)")


def weight(trace_state: str | None, trace_id: bytes) -> int:
    """1 for a span that was not sampled, or whose `tracestate` says nothing of it. `trace_id`: 16 bytes."""
    if not trace_state:
        return 1
    threshold, randomness = _fields(trace_state)
    if threshold is None:
        return 1
    kept = _ALL - threshold
    if randomness is None:
        randomness = int.from_bytes(trace_id[-7:], "big")
    return min((_ALL + (randomness - threshold) % kept) // kept, WEIGHT_MAX)


@lru_cache(maxsize=1024)
def _fields(trace_state: str) -> tuple[int | None, int | None]:
    """(th, rv) as 56 bits. Of an engine all spans say the same, so parsing is cached."""
    member = _MEMBER.search(trace_state)
    fields = dict(_FIELD.findall(member[1])) if member else {}
    threshold, randomness = fields.get("th"), fields.get("rv")
    return (
        # Trailing zeros of a threshold are left out; a randomness has all its digits.
        None if threshold is None else int(threshold.ljust(_DIGITS, "0"), 16),
        int(randomness, 16) if randomness and len(randomness) == _DIGITS else None,
    )
