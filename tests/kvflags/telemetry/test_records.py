# SPDX-License-Identifier: Apache-2.0
"""The queue between the engine's threads and the export thread."""

import threading

from kvflags.telemetry.records import Records, Transfer


def transfer(n: int) -> Transfer:
    return Transfer(f"r{n}", "engine", f"p{n}", 5, 1_000, 2_000)


def test_hands_out_in_order_and_at_most_what_was_asked_for():
    records = Records()
    for n in range(5):
        records.append(transfer(n))
    assert [taken.request for taken in records.take(3)] == ["r0", "r1", "r2"]
    assert [taken.request for taken in records.take(3)] == ["r3", "r4"]
    assert records.take(3) == []
    assert records.dropped == 0


def test_counts_what_it_has_to_refuse_and_keeps_the_rest():
    records = Records(capacity=3)
    for n in range(5):
        records.append(transfer(n))
    assert (len(records), records.dropped) == (3, 2)
    records.take(1)
    records.append(transfer(9))
    assert [taken.request for taken in records.take(9)] == ["r1", "r2", "r9"]
    assert records.dropped == 2


def test_loses_nothing_between_threads():
    records = Records(capacity=1_000)
    writers = [threading.Thread(target=lambda: [records.append(transfer(n)) for n in range(2_000)]) for _ in range(4)]
    for writer in writers:
        writer.start()
    taken = 0
    while any(writer.is_alive() for writer in writers):
        taken += len(records.take(32))
    taken += len(records.take(10_000))
    assert taken + records.dropped == 8_000
