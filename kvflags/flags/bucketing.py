# SPDX-License-Identifier: Apache-2.0
"""Where a unit falls: flagd's `fractional` operation, version 2 (evaluator of flagd 0.15), integers only."""

from __future__ import annotations

import mmh3

from kvflags.flags.model import BUCKETS

__all__ = ["bucket", "fractional"]


def fractional(key: str, total: int) -> int:
    """The place of `key` in [0, total): MurmurHash3 x86 32-bit, seed 0, scaled without a division or a float."""
    return (mmh3.hash(key, seed=0, signed=False) * total) >> 32


def bucket(salt: str, unit: str) -> int:
    """The place of a deployment in [0, BUCKETS) under one salt.

    The salt is part of the hashed key, so two salts deal independently: enrolment and arm never share one, else the
    deployments enrolled first would all land in the same arm.
    """
    return fractional(f"{salt}:{unit}", BUCKETS)
