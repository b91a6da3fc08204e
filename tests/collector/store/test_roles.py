# SPDX-License-Identifier: Apache-2.0
"""Roles: one holder at a time, whoever asks; one that wakes late writes nothing; a dead one is followed."""

import threading

import pytest
from sqlalchemy import insert, select

from kvflags_collector.store.control_tables import collectors, leases
from kvflags_collector.store.roles import LEASE_US, Role, Superseded, holder_name, release, take


@pytest.fixture
def clock():
    """A clock to turn: clock.us."""

    class Clock:
        us = 1_798_891_200_000_000

        def __call__(self):
            return self.us

    return Clock()


def _written(db):
    with db.read() as conn:
        return conn.scalars(select(collectors.c.id)).all()


def test_the_first_who_asks_has_the_role_and_nobody_else(db, clock):
    term = take(db, Role.ROLLER, "a", clock)
    assert (term.role, term.holder, term.fence) == (Role.ROLLER, "a", 1)
    assert take(db, Role.ROLLER, "b", clock) is None
    assert take(db, Role.JUDGE, "b", clock).fence == 1


def test_a_killed_holder_is_followed_after_one_lease(db, clock):
    take(db, Role.ROLLER, "a", clock)
    clock.us += LEASE_US - 1
    assert take(db, Role.ROLLER, "b", clock) is None
    clock.us += 1
    assert take(db, Role.ROLLER, "b", clock).fence == 2


def test_a_holder_that_wakes_late_cannot_write(db, clock):
    stalled = take(db, Role.ROLLER, "a", clock)
    clock.us += LEASE_US
    follower = take(db, Role.ROLLER, "b", clock)
    with pytest.raises(Superseded), stalled.write() as conn:
        conn.execute(insert(collectors).values(id="late", alive_us=0))
    with follower.write() as conn:
        conn.execute(insert(collectors).values(id="in time", alive_us=0))
    assert _written(db) == ["in time"]


def test_writing_renews_the_lease(db, clock):
    term = take(db, Role.ROLLER, "a", clock)
    for _ in range(3):
        clock.us += LEASE_US - 1
        with term.write():
            pass
    assert take(db, Role.ROLLER, "b", clock) is None


def test_a_lease_that_ran_out_still_writes_while_nobody_followed(db, clock):
    term = take(db, Role.ROLLER, "a", clock)
    clock.us += 10 * LEASE_US
    with term.write():
        pass
    assert take(db, Role.ROLLER, "b", clock) is None


def test_what_is_released_is_free_at_once_and_a_late_release_harms_nobody(db, clock):
    first = take(db, Role.ROLLER, "a", clock)
    release(first)
    second = take(db, Role.ROLLER, "b", clock)
    release(first)
    assert (second.fence, take(db, Role.ROLLER, "c", clock)) == (2, None)


def test_a_process_that_starts_again_takes_its_own_role_at_once(db, clock):
    before = take(db, Role.ROLLER, "a", clock)
    assert take(db, Role.ROLLER, "a", clock).fence == 2
    with pytest.raises(Superseded), before.write():
        pass


def test_names_of_holders_fit(db):
    assert 0 < len(holder_name(db)) <= leases.c.holder.type.length


def test_of_many_that_take_at_once_one_has_it(db, clock):
    gate, taken = threading.Barrier(8), []

    def contend(name):
        gate.wait()
        taken.append(take(db, Role.RAMPER, name, clock))

    threads = [threading.Thread(target=contend, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [term.fence for term in taken if term] == [1]
