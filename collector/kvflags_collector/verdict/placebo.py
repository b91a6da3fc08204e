# SPDX-License-Identifier: Apache-2.0
"""What can be said of one deployment: its change, against the changes that controls show without any cause.

Under randomisation a treated deployment without an effect is exchangeable with a control, whatever the autocorrelation,
drift or rate of reconfiguration; tests on one deployment's own hours are wrong 51 to 97 % of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import log

import numpy as np
from scipy.special import stdtrit

from kvflags_collector.verdict.arrays import Bools, Floats, Ints
from kvflags_collector.verdict.spread import spread

__all__ = ["BASELINE_DAYS", "HORIZONS", "LEAST_CONTROLS", "DeploymentVerdict", "Placebo", "place"]

# Days after the event at which a deployment is judged; nothing changes in between.
HORIZONS = (3, 7, 14)
BASELINE_DAYS = 7
LEAST_CONTROLS = 15
_NEUTRAL = log(1.1)
_BETTER, _WORSE = log(0.95), log(1.05)


class DeploymentVerdict(StrEnum):
    """What can be said of one deployment. `insufficient` is the default: -10 % shows in one of ten."""

    POSITIVE = "positive"
    NEGATIVE = "negative"
    NEUTRAL = "neutral"
    INSUFFICIENT = "insufficient"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placebo:
    """The treated events at one horizon, one a row, in log ratio. controls: how many the null rests on."""

    change: Floats
    low: Floats
    high: Floats
    shrunk: Floats
    verdicts: tuple[DeploymentVerdict, ...]
    controls: int


def place(before: Floats, after: Floats, treated: Bools, cohort: Ints, *, alpha: float = 0.05) -> Placebo | None:
    """Judge every treated row at the horizon that `after` spans; None with fewer than 15 controls or without noise.

    before: (n, 7) and after: (n, h) daily means of the log outcome. One event for each control deployment, its latest.
    Each horizon gets a third of `alpha`.
    """
    control = ~treated
    n = int(control.sum())
    if n < LEAST_CONTROLS:
        return None
    change = after.mean(axis=1) - before.mean(axis=1)
    noise = _noise(before, control)
    change = change - _level(change, control, cohort)
    if not np.all(noise > 0):
        return None
    scatter = float(np.sqrt(np.sum((change[control] / noise[control]) ** 2) / (n - 1)))
    sd = noise[treated] * scatter
    reach = float(stdtrit(n - 1, 1 - alpha / (2 * len(HORIZONS)))) * sd * np.sqrt(1 + 1 / n)
    each = change[treated]
    shrunk = spread(each, sd**2).shrunk(each, sd**2)
    low, high = each - reach, each + reach
    verdicts = tuple(_verdict(*row) for row in zip(low, high, shrunk, strict=True))
    return Placebo(change=each, low=low, high=high, shrunk=shrunk, verdicts=verdicts, controls=n)


def _noise(before: Floats, control: Bools) -> Floats:
    """Each row's own day-to-day noise, drawn half way to the fleet's: seven days alone would say too little."""
    steps = np.diff(before, axis=1)
    own = np.mean(steps**2, axis=1)
    freedom = BASELINE_DAYS - 1
    return np.asarray(np.sqrt((freedom * own + freedom * own[control].mean()) / (2 * freedom)))


def _level(change: Floats, control: Bools, cohort: Ints) -> Floats:
    """What the controls of each row's cohort did on average; the average of all for a cohort without any."""
    codes = np.unique(cohort, return_inverse=True)[1]
    number = np.bincount(codes, control)
    total = np.bincount(codes, np.where(control, change, 0.0))
    means = np.where(number > 0, total / np.maximum(number, 1), change[control].mean())
    return np.asarray(means[codes], dtype=np.float64)


def _verdict(low: float, high: float, shrunk: float) -> DeploymentVerdict:
    if high < 0 and shrunk <= _BETTER:
        return DeploymentVerdict.POSITIVE
    if low > 0 and shrunk >= _WORSE:
        return DeploymentVerdict.NEGATIVE
    return DeploymentVerdict.NEUTRAL if low > -_NEUTRAL and high < _NEUTRAL else DeploymentVerdict.INSUFFICIENT
