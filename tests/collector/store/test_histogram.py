# SPDX-License-Identifier: Apache-2.0
"""The laws of the histogram: exact merging in any order, quantiles within 1.09 %, a stored form that is one to one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvflags_collector.store.histogram import EMPTY, Histogram

VALUES = st.lists(st.integers(-5, 1 << 62), max_size=200)


@settings(deadline=None)
@given(VALUES, VALUES, VALUES)
def test_merging_is_recording_together_in_any_order(one, two, three):
    a, b, c = (Histogram.of(values) for values in (one, two, three))
    together = Histogram.of(one + two + three)
    assert (a + b) + c == together == c + (b + a)
    assert together.count == len(one + two + three)


@settings(deadline=None)
@given(st.lists(st.integers(0, 1 << 62), min_size=1, max_size=200), st.floats(0, 1))
def test_quantiles_are_within_1_09_percent_of_the_true_ones(values, q):
    true = np.quantile(values, q, method="inverted_cdf")
    assert Histogram.of(values).quantile(q) == pytest.approx(float(true), rel=0.0109)


@pytest.mark.parametrize("draw", ["lognormal", "pareto", "two humps"])
def test_quantiles_hold_for_the_shapes_that_latencies_have(draw):
    rng = np.random.default_rng(7)
    shapes = {
        "lognormal": rng.lognormal(13, 1, 10_000),
        "pareto": 1e5 * (1 + rng.pareto(1.1, 10_000)),
        "two humps": np.r_[rng.normal(1e6, 1e4, 5_000), rng.normal(9e8, 1e7, 5_000)],
    }
    values = [int(value) for value in shapes[draw]]
    for q in (0.01, 0.5, 0.9, 0.99, 0.999):
        true = np.quantile(values, q, method="inverted_cdf")
        assert Histogram.of(values).quantile(q) == pytest.approx(float(true), rel=0.0109)


@settings(deadline=None)
@given(VALUES)
def test_the_stored_form_is_one_to_one(values):
    histogram = Histogram.of(values)
    assert Histogram.from_bytes(histogram.to_bytes()) == histogram


def test_buckets_are_opentelemetrys():
    # (2^(i/32), 2^((i+1)/32)]: a power of two is the last value of its bucket.
    offsets = {value: Histogram.of([value]).offset for value in (1, 2, 3, 4, 1024, 1025, 1 << 62)}
    assert offsets == {1: -1, 2: 31, 3: 50, 4: 63, 1024: 319, 1025: 320, 1 << 62: 62 * 32 - 1}


def test_the_stored_form_is_fixed():
    assert Histogram.of([0, 2, 2, 3]).to_bytes().hex() == (
        "010500001f000000010000000000000002000000" + "00000000" * 18 + "01000000"
    )


def test_nothing_has_no_quantile_and_zeros_have():
    assert (EMPTY.quantile(0.5), EMPTY.count, Histogram.of([0, -3]).quantile(0.5)) == (None, 0, 0.0)


def test_another_version_is_refused():
    with pytest.raises(ValueError, match="a histogram of version 2, not 1"):
        Histogram.from_bytes(b"\2\5" + bytes(14))


@settings(deadline=None)
@given(st.lists(st.integers(1, 1 << 40), min_size=1), st.lists(st.integers(1, 1 << 40)), st.integers(-3, 4))
def test_a_coarser_histogram_joins_neighbours_exactly(some, others, scale):
    fine, coarse = Histogram.of(some), Histogram.of(others).downscaled(scale)
    both = fine + coarse
    assert (both.scale, both) == (scale, Histogram.of([*some, *others]).downscaled(scale))
    assert both == coarse + fine
    assert Histogram.from_bytes(both.to_bytes()) == both


def test_a_coarser_histogram_knows_its_bounds():
    [low, high] = [Histogram.of([value]).downscaled(0) for value in (1025, 2048)]
    assert (low, low.offset, high.quantile(0.5)) == (high, 10, 2 * 1024 * 2048 / (1024 + 2048))


def test_a_full_bucket_stays_full():
    full = Histogram(0, np.array([(1 << 32) - 1], np.uint64))
    assert (full + full) == full
