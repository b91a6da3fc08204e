# SPDX-License-Identifier: Apache-2.0
"""Adding up what roll-ups measured: exact, in any order and any grouping."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvflags_collector.store.histogram import Histogram
from kvflags_collector.store.measures import NOTHING, Measures, merge
from kvflags_collector.store.tally import tally
from kvflags_collector.store.transfers import Key, Transfer

KEY = Key("d", "g", 1, "e", "treatment", "pull", "1Mi", "b")
INTEGERS = [name for name, value in NOTHING._asdict().items() if not isinstance(value, float)]

_TRANSFERS = st.lists(
    st.builds(
        Transfer,
        key=st.just(KEY),
        start_ns=st.just(0),
        complete=st.booleans(),
        error=st.sampled_from([None, None, "transfer_failed", "other"]),
        duration_ns=st.integers(0, 1 << 62),
        bytes=st.integers(0, 1 << 62),
        descriptors=st.integers(0, 1000),
        blocks=st.integers(0, 1000),
        post_ns=st.none() | st.integers(0, 1 << 40),
        weight=st.sampled_from([1, 1, 2, 100]),
        late=st.booleans(),
    ),
    max_size=12,
)


def _measured(transfers: list[Transfer]) -> Measures:
    return tally(transfers).get(KEY, NOTHING)


def _exact(one: Measures) -> list[object]:
    return [getattr(one, name) for name in INTEGERS]


@given(_TRANSFERS, st.integers(1, 5))
def test_parts_together_are_the_whole(transfers, number):
    whole = _measured(transfers)
    parts = [_measured(transfers[at::number]) for at in range(number)]
    assert _exact(merge(parts)) == _exact(whole)
    assert _exact(merge([merge(parts[:2]), merge(parts[2:])])) == _exact(whole)
    assert merge(parts[::-1]) == merge(parts)


def test_nothing_is_nothing():
    assert merge([]) == merge([NOTHING, NOTHING]) == NOTHING == _measured([])


def test_weighed_transfers_count_as_often_as_they_stand_for():
    three = Transfer(KEY, 0, True, None, 8, 100, 4, 2, 5, weight=3)
    one = Transfer(KEY, 0, True, None, 16, 1, 1, 1, None)
    failed = Transfer(KEY, 0, True, "transfer_failed", 1, 0, 0, 0, None)
    late = Transfer(KEY, 0, True, None, 99, 99, 99, 99, 99, late=True)
    found = _measured([three, one, failed, late])
    assert (found.seen, found.transfers, found.failed, found.incomplete, found.late) == (3, 5, 1, 0, 1)
    assert (found.bytes, found.descriptors, found.blocks) == (301, 13, 7)
    assert (found.duration_ns_sum, found.duration_sq_sum, found.post_ns_sum) == (40, 3 * 64 + 256, 15)
    assert (found.duration_ns_min, found.duration_ns_max) == (8, 16)
    assert Histogram.from_bytes(found.duration_hist) == Histogram.of([8, 8, 8, 16])
    assert Histogram.from_bytes(found.post_hist) == Histogram.of([5, 5, 5])


def test_a_bucket_and_a_sum_stop_at_what_can_be_stored():
    full = Histogram.of([8], [(1 << 32) - 1])
    assert Histogram.from_bytes((full + full).to_bytes()) == full
    most = _measured([Transfer(KEY, 0, True, None, 1, (1 << 63) - 1, 0, 0, None)])
    assert merge([most, most]).bytes == (1 << 63) - 1
