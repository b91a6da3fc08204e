# SPDX-License-Identifier: Apache-2.0
"""The one table of instruments: the outcomes, what users feel, that an engine's front end reports once a minute.

All are sent with delta temporality: a minute that was lost is missing and no more, and a restart needs no reset. The
resource says deployment, generation, epoch and engine; the arm stands on each data point, or on the resource.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from kvflags.telemetry.attributes import Name

__all__ = ["INSTRUMENTS", "Instrument", "InstrumentName"]


class InstrumentName(StrEnum):
    """The names as constants."""

    TTFT = "kvflags.outcome.time_to_first_token"
    ITL = "kvflags.outcome.inter_token_latency"
    KV_USAGE = "kvflags.outcome.kv_cache_usage"
    PROMPT_TOKENS = "kvflags.outcome.prompt_tokens"
    OUTPUT_TOKENS = "kvflags.outcome.output_tokens"
    REQUESTS = "kvflags.outcome.requests"
    PREEMPTIONS = "kvflags.outcome.preemptions"
    PREFIX_QUERIES = "kvflags.outcome.prefix_queries"
    PREFIX_HITS = "kvflags.outcome.prefix_hits"
    KV_BLOCKS = "kvflags.outcome.kv_blocks"


@dataclass(frozen=True, slots=True)
class Instrument:
    """One row. `unit` is a UCUM code. A gauge is kept as one value for each export, so that an hour has its mean.

    `split_by`: the attribute that tells its data points apart, if there are several; the collector adds them up.
    """

    name: InstrumentName
    kind: Literal["exponential histogram", "sum", "gauge"]
    unit: str
    meaning: str
    split_by: str = ""


INSTRUMENTS: tuple[Instrument, ...] = (
    Instrument(
        InstrumentName.TTFT,
        "exponential histogram",
        "s",
        "From a request's arrival to its first token: the primary outcome",
    ),
    Instrument(InstrumentName.ITL, "exponential histogram", "s", "Between two tokens of one request"),
    Instrument(InstrumentName.KV_USAGE, "exponential histogram", "1", "Share of the KV blocks in use, each iteration"),
    Instrument(InstrumentName.PROMPT_TOKENS, "sum", "{token}", "Prompt tokens processed"),
    Instrument(InstrumentName.OUTPUT_TOKENS, "sum", "{token}", "Tokens generated"),
    Instrument(InstrumentName.REQUESTS, "sum", "{request}", "Requests finished", Name.FINISH_REASON),
    Instrument(InstrumentName.PREEMPTIONS, "sum", "{preemption}", "Requests preempted for lack of KV blocks"),
    Instrument(InstrumentName.PREFIX_QUERIES, "sum", "{token}", "Prompt tokens looked up in the engine's prefix cache"),
    Instrument(InstrumentName.PREFIX_HITS, "sum", "{token}", "Of those, tokens that were found there"),
    Instrument(InstrumentName.KV_BLOCKS, "gauge", "{block}", "KV blocks the engine has"),
)
