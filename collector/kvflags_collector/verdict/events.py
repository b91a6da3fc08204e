# SPDX-License-Identifier: Apache-2.0
"""Frozen events: one value for each outcome of one deployment's replacement, in either arm, that never changes again.

The value is the mean over hours of the log outcome in the 3 days after, minus that of the 7 days before. Hourly
means, so that a busy hour does not count more; logs, so that a thousandfold outlier counts as one large number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kvflags_collector.verdict.arrays import Bools, Floats, Ints
from kvflags_collector.verdict.outcomes import Outcome

__all__ = ["AFTER_DAYS", "BEFORE_DAYS", "Events", "change", "complete", "fixed_mix_change", "level"]

BEFORE_DAYS = 7
AFTER_DAYS = 3
_LEAST_BEFORE, _LEAST_AFTER = 1_000, 500
_HOURS_BEFORE, _HOURS_AFTER = 0.8, 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Valid, frozen events, one a row: (n,) each. stratum: an index into `strata`.

    values: log ratio by outcome, NaN where it was not measured. failures: failed transfers before and after, summed.
    event_us: when each was, where somebody acts upon it.
    """

    deployment: Ints
    cohort: Ints
    stratum: Ints
    treated: Bools
    values: Mapping[Outcome, Floats]
    failures: Floats
    strata: tuple[str, ...]
    invariants: Mapping[str, Floats] = field(default_factory=dict)
    event_us: Ints | None = None

    def __len__(self) -> int:
        return len(self.treated)

    def where(self, rows: Bools) -> Events:
        """Those events alone; strata keep their numbers."""
        return Events(
            deployment=self.deployment[rows],
            cohort=self.cohort[rows],
            stratum=self.stratum[rows],
            treated=self.treated[rows],
            values={outcome: values[rows] for outcome, values in self.values.items()},
            failures=self.failures[rows],
            strata=self.strata,
            invariants={name: values[rows] for name, values in self.invariants.items()},
            event_us=None if self.event_us is None else self.event_us[rows],
        )


def change(before: Floats, after: Floats) -> Floats:
    """(n,): the change of the mean, over slots (hours) that have a value. Shapes (n, slots), NaN where unseen."""
    return level(after) - level(before)


def fixed_mix_change(before: Floats, after: Floats, weight: Floats) -> Floats:
    """(n,): as `change`, by class of transfer size, weighed by each class's share *before* the event.

    Shapes (n, classes, slots) and (n, classes). What the treatment does to the mix never enters. A class that one side
    lacks is left out.
    """
    classes = level(after) - level(before)
    known = np.where(np.isfinite(classes), weight, 0.0)
    total = known.sum(axis=1)
    weighed = np.sum(known * np.where(np.isfinite(classes), classes, 0.0), axis=1)
    return np.where(total > 0, weighed / np.where(total > 0, total, 1.0), np.nan)


def complete(before: Floats, after: Floats) -> Bools:
    """(n,): whether enough was seen: 1,000 and 500 transfers, in 80 % and 75 % of the hours.

    Transfers by hour, shapes (n, hours); NaN is an hour without a heartbeat, 0 one with nothing to do.
    """
    enough = (np.nansum(before, axis=1) >= _LEAST_BEFORE) & (np.nansum(after, axis=1) >= _LEAST_AFTER)
    seen = (np.isfinite(before).mean(axis=1) >= _HOURS_BEFORE) & (np.isfinite(after).mean(axis=1) >= _HOURS_AFTER)
    return np.asarray(enough & seen)


def level(values: Floats) -> Floats:
    """The mean over the last axis, of what is known; NaN where nothing is known, without a warning about it."""
    known = np.isfinite(values)
    number = known.sum(axis=-1)
    total = np.where(known, values, 0.0).sum(axis=-1)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)
