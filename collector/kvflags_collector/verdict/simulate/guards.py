# SPDX-License-Identifier: Apache-2.0
"""The error guards of a simulated fleet: evidence of every treated deployment, beside placebo runs of controls."""

from __future__ import annotations

import numpy as np

from kvflags_collector.verdict import errors
from kvflags_collector.verdict.arrays import Bools, Floats, Ints
from kvflags_collector.verdict.errors import BASELINE_BLOCKS, WATCHED_BLOCKS
from kvflags_collector.verdict.simulate.exposure import Exposure
from kvflags_collector.verdict.simulate.plan import BLOCKS_A_DAY

__all__ = ["Guards", "windows"]


class Guards:
    """The evidence of every run so far, block by block. Each control gives one placebo run, its first."""

    def __init__(self, failed: Floats, transfers: Floats, exposure: Exposure) -> None:
        """failed, transfers: (n, blocks), with the treatment."""
        rows = _first_of_each(exposure)
        self.deployment, self.start = exposure.deployment[rows], exposure.day[rows]
        self.treated = exposure.treated[rows]
        self._end = np.where(self.treated, failed.shape[1] // BLOCKS_A_DAY, exposure.since[self.deployment])
        e, n = (windows(values, self.deployment, self.start, WATCHED_BLOCKS) for values in (failed, transfers))
        before = e[:, :BASELINE_BLOCKS], n[:, :BASELINE_BLOCKS]
        after = e[:, BASELINE_BLOCKS:], n[:, BASELINE_BLOCKS:]
        kappa = errors.fleet_dispersion(*before) if len(rows) else 1.0
        self._highest = np.maximum.accumulate(errors.evidence(before, after, kappa), axis=1)

    def highest(self, day: int) -> Floats:
        """(runs,): the most that each has reached by the start of a day; NaN before it began."""
        blocks = np.minimum((np.minimum(day, self._end) - self.start) * BLOCKS_A_DAY, WATCHED_BLOCKS)
        rows = np.arange(len(blocks))
        return np.where(blocks > 0, self._highest[rows, np.maximum(blocks, 1) - 1], np.nan)

    def fired(self, day: int) -> Ints:
        """The treated deployments whose evidence is above what controls reach by themselves."""
        now = self.highest(day)
        placebo = now[~self.treated & np.isfinite(now)]
        return np.asarray(self.deployment[self.treated & (now > errors.threshold(placebo))])


def windows(values: Floats, deployment: Ints, day: Ints, after: int) -> Floats:
    """(events, 28 + after): blocks around each event; what lies beyond the end has nothing in it."""
    padded = np.concatenate([values, np.zeros((len(values), after))], axis=1)
    columns = day[:, None] * BLOCKS_A_DAY + np.arange(-BASELINE_BLOCKS, after)
    return np.asarray(padded[deployment[:, None], columns])


def _first_of_each(exposure: Exposure) -> Ints:
    """The rows of every treated event, and of the first control event of each deployment."""
    first = np.zeros(len(exposure.deployment), dtype=np.bool_)
    first[np.unique(exposure.deployment, return_index=True)[1]] = True
    chosen: Bools = exposure.treated | first
    return np.flatnonzero(chosen)
