# SPDX-License-Identifier: Apache-2.0
"""How long transfers took: counted in columns as one would count them one by one."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

import numpy as np
import pytest

from kvflags_collector.ingest.durations import Durations
from kvflags_collector.ingest.spans.promote import Columns
from kvflags_collector.ingest.spans.took import ARMS, BOUNDS, KINDS, took


def _columns(*spans: tuple[str | None, int, str | None, float]) -> Columns:
    """Of (arm, status, error type, seconds) each; the trace id is the row's number."""
    columns = Columns(len(spans))
    arms, statuses, kinds, seconds = map(list, zip(*spans, strict=True))
    columns.varying |= {"arm": arms, "status": statuses, "error_type": kinds}
    columns.varying["start_ns"] = [10**18] * len(spans)
    columns.varying["end_ns"] = [10**18 + round(one * 1e9) for one in seconds]
    columns.varying["trace_id"] = [number.to_bytes(16, "big") for number in range(len(spans))]
    return columns


@pytest.mark.parametrize("seed", range(3))
def test_it_is_what_counting_one_by_one_gives(seed):
    rng = np.random.default_rng(seed)
    arms, kinds = [*ARMS, "", None, "made up"], [*KINDS, None, "made up"]
    spans = [
        (
            arms[rng.integers(len(arms))],
            int(rng.integers(3)),
            kinds[rng.integers(len(kinds))],
            float(rng.exponential(0.1)),
        )
        for _ in range(500)
    ]
    found = took(_columns(*spans), range(500))
    good = [(arm if arm in ARMS else "none", seconds) for arm, status, _, seconds in spans if status != 2]
    failed = [
        (arm if arm in ARMS else "none", kind if kind in KINDS else "other") for arm, s, kind, _ in spans if s == 2
    ]
    counted = Counter((ARMS.index(arm), bisect_left(BOUNDS, round(seconds, 9))) for arm, seconds in good)
    assert {at: n for at, n in np.ndenumerate(found.counts) if n} == counted
    assert found.failed == Counter(failed)
    assert found.traces.keys() == counted.keys()
    for code, arm in enumerate(ARMS):
        assert found.seconds[code] == pytest.approx(sum(seconds for own, seconds in good if own == arm), abs=1e-6)


def test_a_bucket_holds_its_bound_and_a_clock_that_went_back_is_no_time():
    found = took(_columns(("control", 0, None, 0.001), ("control", 0, None, -3.0)), range(2))
    assert found.counts[ARMS.index("control")].tolist() == [1, 1, *[0] * (len(BOUNDS) - 1)]
    assert found.seconds[ARMS.index("control")] == 0.001


def test_only_the_rows_that_are_transfers_count():
    columns = _columns(("treatment", 0, None, 0.002), ("treatment", 2, "transfer_failed", 0), ("control", 0, None, 9.0))
    found = took(columns, [2])
    assert (found.counts.sum(), found.failed) == (1, Counter())
    [((arm, bucket), (trace, seconds))] = found.traces.items()
    assert (ARMS[arm], bucket, trace, seconds) == ("control", len(BOUNDS), f"{2:032x}", 9.0)


def test_what_is_the_same_for_all_needs_no_column():
    columns = _columns(("treatment", 0, None, 0.002), ("treatment", 0, None, 0.003))
    for name in ("arm", "status", "error_type"):
        columns.constant[name] = columns.varying.pop(name)[0]
    assert took(columns, range(2)).counts[ARMS.index("treatment")].sum() == 2


def test_the_histogram_adds_up_and_keeps_the_newest_trace_of_each_bucket():
    durations = Durations()
    durations.add(took(_columns(("control", 0, None, 0.002), ("control", 2, "x", 1.0)), range(2)), 100.0)
    durations.add(took(_columns(("control", 2, "x", 1.0), ("control", 0, None, 0.0015)), range(2)), 200.0)
    seconds, failed = durations.collect()
    samples = {(s.name, *s.labels.values()): s for s in seconds.samples}
    assert samples["kvflags_transfer_seconds_count", "control"].value == 2
    assert samples["kvflags_transfer_seconds_sum", "control"].value == pytest.approx(0.0035)
    at = samples["kvflags_transfer_seconds_bucket", "control", "0.002"]
    assert (at.value, at.exemplar.labels, at.exemplar.timestamp) == (2, {"trace_id": f"{1:032x}"}, 200.0)
    assert samples["kvflags_transfer_seconds_bucket", "control", "0.001"].value == 0
    assert {tuple(s.labels.values()): s.value for s in failed.samples}["control", "other"] == 2
