# SPDX-License-Identifier: Apache-2.0
"""The hash is frozen: published vectors, and the laws every rollout rests on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvflags.flags import BUCKETS, bucket, fractional

UNITS = st.text(min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [("ejOoVL", 0x0), ("bY9fO-", 0x1), ("SI7p-", 0x7FFFFFFF), ("6LvT0", 0x80000000), ("ceQdGm", 0xFFFFFFFF)],
)
def test_flagd_v2_edge_vectors(key, hashed):
    """flagd's own edge cases: with a total of 2**32 the place is the hash itself."""
    assert fractional(key, 1 << 32) == hashed
    assert fractional(key, BUCKETS) == hashed * BUCKETS >> 32


@given(UNITS, UNITS)
def test_a_bucket_is_a_place_and_stays(salt, unit):
    assert 0 <= bucket(salt, unit) < BUCKETS
    assert bucket(salt, unit) == bucket(salt, unit)


def test_shares_come_out_as_asked():
    inside = sum(bucket("arm", f"fleet/ns/{n}") < BUCKETS // 4 for n in range(20_000))
    assert inside == pytest.approx(5_000, abs=4 * (20_000 * 0.25 * 0.75) ** 0.5)


def test_two_salts_deal_independently():
    """Of those enrolled at 10 %, a quarter is below 25 % under the other salt: early enrollees share no arm."""
    enrolled = [unit for unit in map(str, range(40_000)) if bucket("enrol", unit) < BUCKETS // 10]
    treated = sum(bucket("arm", unit) < BUCKETS // 4 for unit in enrolled)
    assert treated == pytest.approx(len(enrolled) / 4, abs=4 * (len(enrolled) * 3 / 16) ** 0.5)
