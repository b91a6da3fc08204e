# SPDX-License-Identifier: Apache-2.0
"""How long a request's transfers took, by arm: counted where they are columns, before they are stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvflags.flags import Arm
from kvflags.telemetry.failures import FailureKind
from kvflags_collector.ingest.spans.promote import Columns

__all__ = ["ARMS", "BOUNDS", "KINDS", "Took", "took"]

# In seconds. On one host a transfer takes 1 to 10 ms; between hosts, or of long prompts, up to seconds.
BOUNDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
# A span says its arm and its failure itself, so anything may stand there: what is none of these is one series.
ARMS = ("none", *(arm.value for arm in Arm))
KINDS = tuple(kind.value for kind in FailureKind)
_CODES = {arm: code for code, arm in enumerate(ARMS)}
_BUCKETS = len(BOUNDS) + 1
_FAILED = 2


@dataclass(frozen=True, slots=True, eq=False)
class Took:  # noqa: PLW1641 (it holds arrays, which nobody hashes)
    """Each rank's part of a transfer is one. Rows are ARMS, columns the buckets that end at BOUNDS and the rest.

    counts: that succeeded. seconds: of those, by arm. traces: (arm, bucket) -> a trace id in hex and its seconds.
    failed: (arm, kind) -> how many.
    """

    counts: NDArray[np.int64]
    seconds: NDArray[np.float64]
    traces: dict[tuple[int, int], tuple[str, float]]
    failed: Counter[tuple[str, str]]

    def __eq__(self, other: object) -> bool:
        # A dataclass's own asks arrays whether they are true.
        if not isinstance(other, Took):
            return NotImplemented
        arrays = np.array_equal(self.counts, other.counts) and np.array_equal(self.seconds, other.seconds)
        return arrays and (self.traces, self.failed) == (other.traces, other.failed)


def took(columns: Columns, at: Sequence[int]) -> Took:
    """Of the transfers, the rows at `at`."""
    rows = np.asarray(at, np.int64)
    begun, ended = (np.array(columns.varying[name])[rows] for name in ("start_ns", "end_ns"))
    arms = _arms(columns)[rows]
    failed = np.array(columns.values("status"))[rows] == _FAILED
    good = rows[~failed]
    seconds = np.maximum(ended - begun, 0)[~failed] / 1e9
    series = arms[~failed] * _BUCKETS + np.searchsorted(BOUNDS, seconds)
    counts = np.bincount(series, minlength=len(ARMS) * _BUCKETS).reshape(len(ARMS), _BUCKETS)
    return Took(
        counts=counts,
        seconds=np.bincount(arms[~failed], seconds, len(ARMS)).astype(np.float64),
        traces=_traces(columns.varying["trace_id"], good, series, seconds),
        failed=_failed(columns, rows[failed].tolist()),
    )


def _arms(columns: Columns) -> NDArray[np.int64]:
    if "arm" not in columns.varying:
        return np.full(columns.size, _CODES.get(columns.constant.get("arm", ""), 0))
    return np.array([_CODES.get(arm, 0) for arm in columns.varying["arm"]])


def _traces(
    ids: Sequence[bytes], rows: NDArray[np.int64], series: NDArray[np.int64], seconds: NDArray[np.float64]
) -> dict[tuple[int, int], tuple[str, float]]:
    """The first of each series that has any."""
    found, firsts = np.unique(series, return_index=True)
    return {
        divmod(one, _BUCKETS): (bytes(ids[rows[first]]).hex(), float(seconds[first]))
        for one, first in zip(found.tolist(), firsts.tolist(), strict=True)
    }


def _failed(columns: Columns, rows: list[int]) -> Counter[tuple[str, str]]:
    if not rows:
        return Counter()
    arms, kinds = columns.values("arm"), columns.values("error_type")
    return Counter((_known(arms[row], ARMS, "none"), _known(kinds[row], KINDS, FailureKind.OTHER)) for row in rows)


def _known(value: Any, known: tuple[str, ...], otherwise: str) -> str:  # noqa: ANN401 - whatever was sent
    return value if value in known else otherwise
