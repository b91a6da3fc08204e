# SPDX-License-Identifier: Apache-2.0
"""Which spans of a request cannot be stored, and why: the only place that turns one down."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from kvflags_collector.ingest.spans.wire import Wire

__all__ = ["refuse"]

_DAY_NS, _HOUR_NS = 86_400 * 10**9, 3_600 * 10**9

_ID = "with an id that is not 16 and 8 bytes long, or all zeros"
_START = "that started more than 7 days ago or more than an hour ahead"
_END = "that ends beyond the year 2262"
_UNREADABLE = "with text that is not UTF-8, or with a damaged part"


def refuse(wire: Wire, unreadable: set[int], now_ns: int, rejected: Counter[str]) -> NDArray[np.bool_]:
    """Of each span whether it is kept. Those that are not are counted under their first reason, in this order."""
    earliest, latest = max(0, now_ns - 7 * _DAY_NS), now_ns + _HOUR_NS
    damaged = np.zeros(len(wire.start), bool)
    damaged[list(unreadable)] = True
    kept = np.ones(len(wire.start), bool)
    for reason, bad in (
        (_ID, _bad_ids(wire)),
        (_START, (wire.start < np.uint64(earliest)) | (wire.start > np.uint64(latest))),
        (_END, wire.end >= np.uint64(1 << 63)),
        (_UNREADABLE, damaged),
    ):
        if number := int((bad & kept).sum()):
            rejected[reason] += number
            kept &= ~bad
    return kept


def _bad_ids(wire: Wire) -> NDArray[np.bool_]:
    return _bad(wire.trace_ids, 16) | _bad(wire.span_ids, 8)


def _bad(ids: list[bytearray], size: int) -> NDArray[np.bool_]:
    zeros = bytearray(size)
    if set(map(len, ids)) <= {size} and zeros not in ids:
        return np.zeros(len(ids), bool)
    return np.array([len(one) != size or one == zeros for one in ids], bool)
