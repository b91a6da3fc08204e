# SPDX-License-Identifier: Apache-2.0
"""The hash is frozen: published vectors, and the laws every rollout rests on."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvflags.flags import BUCKETS, bucket, fractional

# What flagd's testbed expects of `fractional` version 2: open-feature/flagd-testbed at 9e1b98dcb6d1 (Apache-2.0),
# evaluator/gherkin/fractional.feature with the weights of evaluator/flags/testkit-flags.json. Each row: the key hashed,
# which flagd puts together from the flag's key or a seed and the unit, the weights, and the variant's place among them.
CARDS = ("clubs", "diamonds", "hearts", "spades")
QUARTERS, HALVES = (25,) * 4, (50, 50)
TESTBED = [
    *(
        (f"fractional-flag{name}", QUARTERS, CARDS.index(card))
        for name, card in (
            ("jack", "hearts"),
            ("queen", "spades"),
            ("ten", "clubs"),
            ("nine", "diamonds"),
            ("3", "clubs"),
        )
    ),
    *(
        (f"shared-seed{name}", QUARTERS, CARDS.index(card))
        for name, card in (("seven", "hearts"), ("eight", "diamonds"), ("nine", "clubs"), ("two", "spades"))
    ),
    ("fractional-flag-shorthandjon@company.com", (1, 1), 0),
    ("fractional-flag-shorthandjane@company.com", (1, 1), 1),
    ("ejOoVL", HALVES, 0),
    ("bY9fO-", HALVES, 0),
    ("SI7p-", HALVES, 0),
    ("6LvT0", HALVES, 1),
    ("ceQdGm", HALVES, 1),
    ("jon@company.com", HALVES, 0),
    ("user1", HALVES, 1),
    ("jon@company.com", (100, 10), 0),
    ("user1", (100, 10), 0),
    ("jon@company.com", (0, 10), 1),
    ("user1", (0, 10), 1),
    ("fractional-single-entry-flag", (1,), 0),
]

UNITS = st.text(min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [("ejOoVL", 0x0), ("bY9fO-", 0x1), ("SI7p-", 0x7FFFFFFF), ("6LvT0", 0x80000000), ("ceQdGm", 0xFFFFFFFF)],
)
def test_flagd_v2_edge_vectors(key, hashed):
    """flagd's own edge cases: with a total of 2**32 the place is the hash itself."""
    assert fractional(key, 1 << 32) == hashed
    assert fractional(key, BUCKETS) == hashed * BUCKETS >> 32


@pytest.mark.parametrize(("key", "weights", "variant"), TESTBED)
def test_flagds_testbed(key, weights, variant):
    below = list(accumulate(weights))
    assert next(at for at, end in enumerate(below) if fractional(key, below[-1]) < end) == variant


@pytest.mark.parametrize(("key", "place"), [("jon@company.com", 36), ("user1", 76)])
def test_the_places_of_a_hundred_that_flagds_testbed_names(key, place):
    assert fractional(key, 100) == place


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
