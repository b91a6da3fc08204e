# SPDX-License-Identifier: Apache-2.0
"""Whether the arms are as large as the draw made them: evidence over trials whose probability is known.

A trial is one deployment that was drawn, reported, fell silent, was replaced or was left out. With a target in percent
its probability is that of the draw; in the other cases the share of the treated among those it could have happened to.
"""

from __future__ import annotations

import numpy as np

from kvflags_collector.verdict.arrays import Bools, Floats

__all__ = ["BLOCKS", "WARNS", "e_value"]

# Odds against which the observed ones are held: too few treated, and too many.
_ODDS = np.array([1 / 4, 1 / 2, 1 / 1.5, 1 / 1.2, 1.2, 1.5, 2, 4])
WARNS = 20.0
BLOCKS = 100.0


def e_value(probability: Floats, treated: Bools) -> float:
    """The evidence that trials did not come out as drawn; 1 without any. The order of trials does not matter.

    Trials with a probability of 0 or 1 say nothing and are left out.
    """
    drawn = (probability > 0) & (probability < 1)
    p, z = probability[drawn], treated[drawn]
    q = _ODDS[:, None] * p / (1 - p + _ODDS[:, None] * p)
    logs = np.where(z, np.log(q / p), np.log((1 - q) / (1 - p))).sum(axis=1)
    return float(np.exp(min(np.logaddexp.reduce(logs) - np.log(len(_ODDS)), 700.0)))
