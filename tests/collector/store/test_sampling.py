# SPDX-License-Identifier: Apache-2.0
"""What a sampled transfer stands for: integers that average the sampling's rate, always the same for a span."""

import random

import pytest

from kvflags.telemetry.sampler import TransferSampler
from kvflags_collector.store.sampling import WEIGHT_MAX, weight

TRACE = bytes(9) + b"\xff" * 7


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, 1),
        ("", 1),
        ("ot=th:0", 1),
        ("ot=th:8", 2),
        ("ot=th:c", 4),
        ("vendor=1,ot=th:c", 4),
        ("vendor=1, ot=rv:ffffffffffffff;th:c,other=2", 4),
        ("ot=th:ffffffffffffff", WEIGHT_MAX),
        ("rot=th:c", 1),
        ("ot=th:xyz", 1),
        ("ot=th:0123456789abcdef", 1),
        ("other=ot;th:c", 1),
    ],
)
def test_the_weight_of_a_threshold(state, expected):
    assert weight(state, TRACE) in {expected, expected + 1}
    if expected in {1, WEIGHT_MAX}:
        assert weight(state, TRACE) == expected


@pytest.mark.parametrize("share", [1.0, 0.5, 0.3, 0.01])
def test_weights_of_what_is_kept_sum_to_what_there_was(share):
    drawn = random.Random(7)
    sampler, there, found = TransferSampler(share), 40_000, 0
    for _ in range(there):
        trace = drawn.getrandbits(128)
        kept = sampler.should_sample(None, trace, "kv.transfer")
        if kept.decision.is_sampled():
            state = kept.trace_state and kept.trace_state.to_header()
            found += weight(state or None, trace.to_bytes(16, "big"))
    # Five standard deviations of the number that is kept.
    assert found == pytest.approx(there, abs=5 * (there * (1 - share) / share) ** 0.5 + 1e-9)


def test_an_explicit_randomness_replaces_the_trace_id():
    third = "ot=th:55555555555555;rv:{}"
    assert {weight(third.format(rv), TRACE) for rv in ("55555555555555", "fffffffffffffe")} == {1, 2}
