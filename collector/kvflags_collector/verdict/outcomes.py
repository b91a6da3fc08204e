# SPDX-License-Identifier: Apache-2.0
"""What is judged, which way is worse, and how much worse is accepted. One table: judge, report and docs read it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import log

from kvflags_collector.verdict.effect import Interval

__all__ = ["LIMITS", "PRIMARY", "Limit", "Outcome", "Role"]


class Outcome(StrEnum):
    """Each is analysed as the log of its hourly mean, failures as the log of their rate."""

    TIME_TO_FIRST_TOKEN = "time_to_first_token"
    INTER_TOKEN_LATENCY = "inter_token_latency"
    OUTPUT_TOKENS = "output_tokens_per_second"
    FAILED_TRANSFERS = "failed_transfers"
    KV_BLOCKS = "kv_blocks"
    PREEMPTIONS = "preemptions"
    POST_TIME = "post_time"
    LATENCY_PER_BYTE = "latency_per_byte"

    @property
    def words(self) -> str:
        return "KV blocks" if self is Outcome.KV_BLOCKS else self.value.replace("_", " ")


class Role(StrEnum):
    """primary: must improve. guard: must not get worse. watched: holds a rollout, decides nothing. shown: neither."""

    PRIMARY = "primary"
    GUARD = "guard"
    WATCHED = "watched"
    SHOWN = "shown"


@dataclass(frozen=True, slots=True)
class Limit:
    """worst: the log ratio that is still accepted; positive where more is worse, negative where less is."""

    outcome: Outcome
    role: Role
    worst: float

    def met(self, interval: Interval) -> bool:
        """Whether all of the interval is on the good side."""
        return interval.high < self.worst if self.worst >= 0 else interval.low > self.worst

    def broken(self, interval: Interval) -> bool:
        """Whether all of the interval is on the bad side."""
        return interval.low > self.worst if self.worst >= 0 else interval.high < self.worst

    @property
    def words(self) -> str:
        """The limit as a person would write it: `<+3 %`, `>-2 %`, `<x3`."""
        ratio = 2.718281828459045**self.worst
        if ratio >= 1.2:
            return f"<x{ratio:g}" if ratio < 3 else f"<x{ratio:.0f}"
        return f"{'<' if self.worst >= 0 else '>'}{ratio - 1:+.0%}" if self.worst else "<0%"


PRIMARY = Outcome.TIME_TO_FIRST_TOKEN

LIMITS: dict[Outcome, Limit] = {
    one.outcome: one
    for one in (
        Limit(Outcome.TIME_TO_FIRST_TOKEN, Role.PRIMARY, 0.0),
        Limit(Outcome.INTER_TOKEN_LATENCY, Role.GUARD, log(1.03)),
        Limit(Outcome.OUTPUT_TOKENS, Role.GUARD, log(0.98)),
        Limit(Outcome.FAILED_TRANSFERS, Role.GUARD, log(3)),
        Limit(Outcome.KV_BLOCKS, Role.GUARD, log(0.99)),
        Limit(Outcome.PREEMPTIONS, Role.WATCHED, log(1.2)),
        Limit(Outcome.POST_TIME, Role.SHOWN, log(1.03)),
        Limit(Outcome.LATENCY_PER_BYTE, Role.SHOWN, log(1.03)),
    )
}
