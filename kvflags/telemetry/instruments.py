# SPDX-License-Identifier: Apache-2.0
"""The one table of instruments: the outcomes, what users feel, that an engine's front end reports once a minute.

All are sent with delta temporality: a minute that was lost is missing and no more, and a restart needs no reset. The
resource says deployment, generation, epoch and engine; the arm stands on each data point, or on the resource.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["INSTRUMENTS", "Instrument"]


@dataclass(frozen=True, slots=True)
class Instrument:
    """One row. `unit` is a UCUM code. A gauge is kept as one value for each export, so that an hour has its mean."""

    name: str
    kind: Literal["exponential histogram", "sum", "gauge"]
    unit: str
    meaning: str


INSTRUMENTS: tuple[Instrument, ...] = (
    Instrument(
        "kvflags.outcome.time_to_first_token",
        "exponential histogram",
        "s",
        "From a request's arrival to its first token: the primary outcome",
    ),
    Instrument(
        "kvflags.outcome.inter_token_latency", "exponential histogram", "s", "Between two tokens of one request"
    ),
    Instrument(
        "kvflags.outcome.kv_cache_usage", "exponential histogram", "1", "Share of the KV blocks in use, each iteration"
    ),
    Instrument("kvflags.outcome.prompt_tokens", "sum", "{token}", "Prompt tokens processed"),
    Instrument("kvflags.outcome.output_tokens", "sum", "{token}", "Tokens generated"),
    Instrument("kvflags.outcome.requests", "sum", "{request}", "Requests finished"),
    Instrument("kvflags.outcome.preemptions", "sum", "{preemption}", "Requests preempted for lack of KV blocks"),
    Instrument("kvflags.outcome.kv_blocks", "gauge", "{block}", "KV blocks the engine has"),
)
