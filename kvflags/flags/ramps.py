# SPDX-License-Identifier: Apache-2.0
"""The ramp that suits a fleet of a size, where nobody lays out another."""

from __future__ import annotations

from kvflags.flags.model import BUCKETS, Step, Target

__all__ = ["default_steps"]

# Below 200 eligible deployments a percentage is too coarse to be a plan: 1 % of 150 is one or two by luck.
_SMALL = 200
# The first horizon at which a deployment's verdict is frozen.
_HOLD_S = 3 * 86_400


def default_steps(eligible: int, hold_s: int = _HOLD_S) -> tuple[Step, ...]:
    """1, 2, 5, half of a fleet below 200 eligible deployments; 1, 5, 25, 50 % of a larger one."""
    if eligible >= _SMALL:
        return tuple(Step(Target(share=share * BUCKETS // 100), hold_s) for share in (1, 5, 25, 50))
    counts = sorted({min(count, max(eligible // 2, 1)) for count in (1, 2, 5, max(eligible // 2, 1))})
    return tuple(Step(Target(count=count), hold_s) for count in counts)
