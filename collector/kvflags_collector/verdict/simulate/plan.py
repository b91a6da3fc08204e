# SPDX-License-Identifier: Apache-2.0
"""What is true of a simulated fleet. Variances are assumptions, to be replaced by those of real baselines."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import log

__all__ = ["BASELINE_DAYS", "BLOCKS_A_DAY", "FIRST_LOOK", "STRATA", "Plan"]

BASELINE_DAYS = 7
BLOCKS_A_DAY = 4
# The first event is a day old.
FIRST_LOOK = 8
# Names and shares of the strata.
STRATA = (("FLASH_ATTN", 0.45), ("FLASHINFER", 0.30), ("TRITON_ATTN", 0.15), ("FLEX_ATTENTION", 0.10))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """effect: true relative change of time to first token on treated deployments. heterogeneity: its SD in log between
    deployments. error_ratio: by which factor failures change. inter_token: true relative change of its latency.

    strata_effects: overrides `effect` by stratum. ramp: (day, share treated from then on). days: how many daily looks.
    there: share of deployments that are there on day 0; the rest arrive evenly. counted: the share is
    exact, else each is drawn. lost: share of the treated that never report. shift_rate: jumps of a deployment a day.
    error_ar, burst_blocks: how failures cluster in time.
    """

    deployments: int = 50
    days: int = 60
    effect: float = 0.0
    heterogeneity: float = 0.0
    error_ratio: float = 1.0
    inter_token: float = 0.0
    strata_effects: tuple[float, ...] = ()
    ramp: tuple[tuple[int, float], ...] = ((7, 0.01), (10, 0.05), (14, 0.25), (21, 0.5))
    there: float = 0.5
    counted: bool = False
    lost: float = 0.0
    shift_rate: float = 0.01
    error_ar: float = 0.6
    burst_blocks: int = 2

    @property
    def end(self) -> int:
        """Days that are simulated."""
        return FIRST_LOOK + self.days

    @property
    def log_effects(self) -> tuple[float, ...]:
        """True effect by stratum."""
        return tuple(log(1 + effect) for effect in self.strata_effects or (self.effect,) * len(STRATA))

    def share(self, day: int) -> float:
        """Treated share on a day."""
        return next((share for start, share in reversed(self.ramp) if start <= day), 0.0)

    def steps(self) -> list[tuple[int, float]]:
        """(day, probability of each control to be treated on it)."""
        shares = [0.0, *(share for _, share in self.ramp)]
        return [
            (day, (after - before) / (1 - before))
            for (day, _), (before, after) in zip(self.ramp, pairwise(shares), strict=True)
        ]

    @property
    def quarter_from(self) -> int:
        """The day from which a quarter is treated; the end if never."""
        return next((day for day, share in self.ramp if share >= 0.25), self.end)
