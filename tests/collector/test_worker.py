# SPDX-License-Identifier: Apache-2.0
"""The thread in a role: only one of several works, and the next goes on when it leaves or is killed."""

import logging
import threading

import pytest

from kvflags.errors import Unavailable
from kvflags_collector.store.roles import LEASE_US, Role, take
from kvflags_collector.worker import Worker


@pytest.fixture
def worker(db):
    """worker(holder, work, clock=…): not started; closed at the end."""
    made = []

    def make(holder, work, clock=lambda: 0):
        made.append(Worker(db, Role.JUDGE, work, clock=clock, holder=holder, every_s=0.01))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_one_of_two_works_and_the_other_follows_when_it_is_closed(worker):
    turns, seen = [], threading.Event()

    def work(term):
        turns.append(term.holder)
        seen.set()

    first, second = worker("a", work), worker("b", work)
    first.start()
    assert seen.wait(10)
    second.start()
    seen.clear()
    assert seen.wait(10)
    assert set(turns) == {"a"}
    first.close()
    count = len(turns)
    while len(turns) < count + 2:
        seen.clear()
        assert seen.wait(10)
    assert set(turns[count:]) == {"b"}


def test_a_worker_that_lost_its_role_waits_for_it(db, worker, caplog):
    now, passes = [0], []

    def work(term):
        passes.append(term.fence)
        with term.write():
            pass

    one = worker("a", work, lambda: now[0])
    one.once()
    now[0] += LEASE_US
    assert take(db, Role.JUDGE, "b", lambda: now[0])
    with caplog.at_level(logging.WARNING):
        one.once()
    assert caplog.messages == ["another collector is judge by now; waiting for it to be free"]
    one.once()
    now[0] += LEASE_US
    one.once()
    assert passes == [1, 1, 3]


def test_an_idle_holder_keeps_its_role(db, worker, monkeypatch):
    now = [0]
    one = worker("a", lambda term: None, lambda: now[0])
    one.once()
    now[0] += LEASE_US - 1
    monkeypatch.setattr("time.monotonic", lambda: 1e9)
    one.once()
    now[0] += LEASE_US - 1
    assert take(db, Role.JUDGE, "b", lambda: now[0]) is None


def test_what_the_work_says_is_how_long_it_rests(worker):
    assert worker("a", lambda term: 7.0).once() == 7.0
    assert worker("a", lambda term: None).once() == 0.01


def test_a_database_that_cannot_answer_puts_it_off(worker, caplog):
    def work(term):
        raise Unavailable("the disk is full")

    assert worker("a", work).once() == 0.01
    assert caplog.messages == ["judge put off: the disk is full"]
