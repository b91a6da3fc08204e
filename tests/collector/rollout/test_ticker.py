# SPDX-License-Identifier: Apache-2.0
"""The thread that ticks: once before anybody is answered, then by itself, whatever goes wrong in between."""

import logging
import threading
import time

import pytest

from kvflags_collector.rollout.tick import Ticker


@pytest.fixture
def ticker(fleet):
    made = []

    def make(clock):
        made.append(Ticker(fleet.db, fleet.timing, clock, every_s=0.01))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_the_first_tick_is_done_when_start_returns(fleet, ticker):
    ticker(lambda: fleet.now).start()
    assert fleet.rows("collectors", "alive_us") == [(fleet.now,)]


def test_it_goes_on_by_itself_and_ends_when_closed(fleet, ticker):
    one, twice = ticker(lambda: calls.append(1) or fleet.now), threading.Event()
    calls = []
    one.start()
    assert one.alive
    while len(calls) < 3:
        twice.wait(0.01)
    one.close()
    assert not one.alive
    after = len(calls)
    time.sleep(0.05)
    assert len(calls) == after


def test_it_outlives_a_failure_and_says_so(fleet, ticker, caplog):
    calls = []

    def clock():
        calls.append(1)
        if len(calls) == 2:
            raise ZeroDivisionError
        return fleet.now

    one = ticker(clock)
    with caplog.at_level(logging.ERROR):
        one.start()
        while len(calls) < 4:
            time.sleep(0.01)
    assert one.alive
    assert [record.message for record in caplog.records] == ["ramper failed"]
