# SPDX-License-Identifier: Apache-2.0
"""Folding: the buckets are OpenTelemetry's, what no clock can measure spoils nothing, no value is lost."""

import math
import random
import threading

import pytest

from kvflags.telemetry.instruments import InstrumentName
from kvflags.telemetry.tally import Buckets, Tally


def test_each_value_lies_in_the_bucket_it_is_counted_in():
    random.seed(5)
    values = [random.lognormvariate(-3, 3) for _ in range(2000)] + [2.0**power for power in range(-20, 20)]
    for value in values:
        buckets = Buckets()
        buckets.add([value])
        ((index, number),) = buckets.counts.items()
        assert number == 1
        assert 2 ** ((index - 1) / 32) * (1 - 1e-12) < value <= 2 ** (index / 32) * (1 + 1e-12)


def test_a_power_of_two_is_the_upper_bound_of_its_bucket():
    buckets = Buckets()
    buckets.add([0.25, 1.0, 2.0])
    assert dict(buckets.counts) == {-64: 1, 0: 1, 32: 1}


def test_what_no_clock_can_measure_spoils_nothing():
    buckets = Buckets()
    buckets.add([0.5, 0.0, -3.0, math.nan, math.inf, 1e12])
    assert (dict(buckets.counts), buckets.zeros, buckets.total) == ({-32: 1}, 2, 0.5)
    assert (buckets.least, buckets.most) == (0.0, 0.5)


def test_intervals_touch_and_a_clock_set_back_makes_none_of_negative_length():
    times = iter([100, 160, 150, 300])
    tally = Tally(clock=lambda: next(times))
    intervals = [tally.take() for _ in range(3)]
    assert [(interval.start_ns, interval.end_ns) for interval in intervals] == [(100, 160), (160, 161), (161, 300)]


@pytest.mark.parametrize("number", [0, -1])
def test_a_sum_only_grows(number):
    tally = Tally()
    tally.add(lambda interval: interval.count(InstrumentName.PREFIX_HITS, number))
    assert not tally.take().sums


def test_nothing_is_lost_or_doubled_while_another_thread_takes():
    tally, taken, done = Tally(), [], threading.Event()

    def take():
        while not done.is_set():
            taken.append(tally.take())

    taker = threading.Thread(target=take)
    taker.start()
    for _ in range(20_000):
        tally.add(lambda interval: interval.count(InstrumentName.OUTPUT_TOKENS, 1))
    done.set()
    taker.join()
    taken.append(tally.take())
    assert sum(interval.sums.total() for interval in taken) == 20_000
    assert len(taken) > 2
