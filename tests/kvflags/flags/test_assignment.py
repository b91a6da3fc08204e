# SPDX-License-Identifier: Apache-2.0
"""Assignment as laws: growing evicts nobody, shrinking releases the last first, counts are exact, scopes are apart."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvflags.flags import BUCKETS, Arm, Candidate, Comparison, Flag, Target, assign, bucket

FLAG = Flag(key="f", feature="cross_layer_blocks", salt_enrolment="e", salt_arm="a")
FLEET = [f"c/n/{n}" for n in range(60)]
SHARES = st.integers(0, BUCKETS)


def deal(flag, fleet=FLEET, before=None, backend="FLASH_ATTN"):
    before = before or {}
    return assign(flag, [Candidate(unit, backend, before.get(unit)) for unit in fleet])


def treated(dealt):
    return {unit for unit, assignment in dealt.items() if assignment.arm == Arm.TREATMENT}


def at(share):
    return replace(FLAG, target=Target(share=share))


@given(SHARES, SHARES)
def test_raising_never_evicts_and_lowering_releases_the_last_first(one, other):
    low, high = sorted((one, other))
    grown = deal(at(high), before=deal(at(low)))
    assert treated(deal(at(low))) <= treated(grown)
    shrunk = deal(at(low), before=grown)
    assert treated(shrunk) == treated(deal(at(low)))
    for unit in treated(grown) - treated(shrunk):
        assert (shrunk[unit].arm, shrunk[unit].comparison, shrunk[unit].reason) == (
            None,
            Comparison.EXCLUDED,
            "released",
        )


@given(st.lists(st.sampled_from([0, 10, 25, 50, 100]), min_size=1, max_size=6))
def test_what_was_released_never_comes_back_into_the_comparison(percentages):
    dealt, released = {}, set()
    for percentage in percentages:
        before, dealt = dealt, deal(at(percentage * 1000), before=dealt)
        released |= treated(before) - treated(dealt)
        assert {unit for unit in released if dealt[unit].comparison == Comparison.INCLUDED} == set()


@given(st.integers(0, 70), st.permutations(FLEET))
def test_a_count_is_exact_and_order_free(count, order):
    dealt = deal(replace(FLAG, target=Target(count=count)), fleet=order)
    lowest = sorted(FLEET, key=lambda unit: bucket("a", unit))[:count]
    assert treated(dealt) == set(lowest)
    assert len(dealt) == len(FLEET)


def test_a_newcomer_with_a_lower_bucket_evicts_nobody():
    flag = replace(FLAG, target=Target(count=1))
    ranked = sorted(FLEET, key=lambda unit: bucket("a", unit))
    before = deal(flag, fleet=ranked[5:])
    after = deal(flag, fleet=ranked, before=before)
    assert treated(before) == treated(after) == {ranked[5]}


def test_backends_are_scopes_of_their_own():
    flag = replace(FLAG, target=Target(share=BUCKETS), overrides={"FLASHINFER": Target(share=0)})
    assert treated(deal(flag, backend="FLASHINFER")) == set()
    assert treated(deal(flag, backend="FLASH_ATTN")) == set(FLEET)
    only = replace(FLAG, target=None, overrides={"FLASHINFER": Target(count=2)})
    assert treated(deal(only, backend="FLASH_ATTN")) == set()
    assert len(treated(deal(only, backend="FLASHINFER"))) == 2


def test_the_holdback_is_control_even_at_100_percent():
    flag = replace(at(BUCKETS), holdback=BUCKETS // 5)
    dealt = deal(flag)
    held = {unit for unit in FLEET if bucket("a", unit) >= BUCKETS * 4 // 5}
    assert held
    assert treated(dealt) == set(FLEET) - held
    assert {(dealt[unit].arm, dealt[unit].comparison, dealt[unit].reason) for unit in held} == {
        (Arm.CONTROL, Comparison.INCLUDED, "holdback")
    }


def test_outside_the_enrolment_nobody_is_compared():
    flag = replace(at(BUCKETS), enrolment=BUCKETS // 2)
    dealt = deal(flag)
    outside = {unit for unit in FLEET if bucket("e", unit) >= BUCKETS // 2}
    assert {(dealt[unit].arm, dealt[unit].comparison) for unit in outside} == {(None, Comparison.EXCLUDED)}
    assert treated(dealt) == set(FLEET) - outside


@pytest.mark.parametrize("fields", [{}, {"share": 1, "count": 1}, {"share": -1}, {"share": BUCKETS + 1}, {"count": -1}])
def test_a_target_that_makes_no_sense_is_refused(fields):
    with pytest.raises(ValueError, match=r"percentage|count"):
        Target(**fields)
