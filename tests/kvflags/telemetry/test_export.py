# SPDX-License-Identifier: Apache-2.0
"""The export thread: batches, repeats, losses, and the second it has at the end."""

import logging
import socket
import time

import pytest

from kvflags.telemetry import export
from kvflags.telemetry.export import Exporter
from kvflags.telemetry.labels import Labels
from kvflags.telemetry.records import Records, Transfer

LABELS = Labels("e", 0)
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "5"}


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch):
    monkeypatch.setattr(export, "_FIRST_RETRY_S", 0.02)


@pytest.fixture
def records():
    return Records()


def add(records, count, first=0):
    for n in range(first, first + count):
        records.append(Transfer(f"r{n}", "p", f"q{n}", 1, 1_000 + n, 2_000 + n))


@pytest.fixture
def exporter():
    """Exporter, its connection closed at the end: some tests run single passes of it, without the thread."""
    made = []

    def make(records, url, labels=lambda: LABELS, token=None, environ=QUICK, **more):
        made.append(Exporter(records, labels, url, token, environ=environ, **more))
        return made[-1]

    yield make
    for each in made:
        if each._thread.is_alive():
            each._thread.join(5)
        if each._wire is not None:
            each._wire.close()


def sizes(collector):
    return [len(collector.spans_in(body)) for body in collector.bodies]


def wait_until(condition, timeout_s=5.0):
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert condition()


def test_sends_everything_in_batches_of_at_most_512(exporter, records, collector):
    add(records, 1_300)
    running = exporter(records, collector.url, token="secret")
    running.start()
    wait_until(lambda: sum(sizes(collector)) == 1_300)
    running.shutdown()
    assert sizes(collector) == [512, 512, 276]
    assert {headers["authorization"] for headers in collector.headers} == {"Bearer secret"}
    assert len({span.span_id for span in collector.spans()}) == 1_300
    assert running.dropped == 0


def test_a_smaller_batch_may_be_asked_for_and_a_larger_may_not(exporter, records, collector):
    add(records, 100)
    running = exporter(records, collector.url, environ=QUICK | {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "40"})
    running.start()
    running.shutdown()
    assert sizes(collector) == [40, 40, 20]
    collector.bodies.clear()
    add(records, 600)
    running = exporter(records, collector.url, environ=QUICK | {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "9999"})
    running.start()
    running.shutdown()
    assert sizes(collector) == [512, 88]


def test_builds_few_at_a_time_and_rests_as_long_as_it_worked(exporter, records, collector, monkeypatch):
    built, rests = [], []
    take = records.take
    monkeypatch.setattr(records, "take", lambda most: built.append(most) or take(most))
    add(records, 100)
    running = exporter(records, collector.url)
    monkeypatch.setattr(running._stop, "wait", rests.append)
    running._pass()
    assert max(built) <= 32
    assert len(rests) == 13
    assert all(0 < rest < 1 for rest in rests)


def test_a_failed_batch_is_sent_again_unchanged_and_nothing_is_lost(exporter, records, collector):
    collector.status = 503
    add(records, 3)
    running = exporter(records, collector.url)
    running.start()
    collector.wait_for(bodies=3)
    add(records, 2, first=3)
    collector.wait_for(bodies=5)
    collector.status = 200
    wait_until(lambda: not len(records))
    running.shutdown()
    tries = [body for body in collector.bodies if len(collector.spans_in(body)) == 3]
    assert len(set(tries)) == 1
    assert sizes(collector) == [3] * len(tries) + [2]
    assert running.dropped == 0


def test_waits_longer_each_time(exporter, records, collector, monkeypatch):
    monkeypatch.setattr(export, "_FIRST_RETRY_S", 1.0)
    collector.status = 500
    add(records, 1)
    waiting = exporter(records, collector.url)
    pauses = []
    for _ in range(7):
        waiting._not_before = 0.0
        waiting._pass()
        pauses.append(waiting._retry_s)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    waiting._pass()
    assert len(collector.bodies) == 7
    collector.status = 200
    waiting._not_before = 0.0
    waiting._pass()
    assert (waiting._retry_s, len(collector.bodies)) == (0.0, 8)


def test_what_no_retry_can_mend_is_dropped_and_counted(exporter, records, collector, caplog):
    collector.status = 400
    add(records, 3)
    losses = []
    running = exporter(records, collector.url, on_flush=losses.append)
    running._pass()
    assert (running.dropped, losses) == (3, [3])
    assert "refused 3 spans: HTTP 400" in caplog.text
    collector.status = 200
    add(records, 1)
    running._pass()
    assert sizes(collector) == [3, 1]


def test_what_the_queue_refused_is_part_of_the_count(exporter, collector):
    records = Records(capacity=2)
    add(records, 5)
    losses = []
    exporter(records, collector.url, on_flush=losses.append)._pass()
    assert losses == [3]


def test_an_error_of_ours_costs_the_records_in_hand_and_is_counted(exporter, records, collector, caplog):
    add(records, 40)
    broken = [True]

    def labels():
        if broken.pop() if broken else False:
            raise RuntimeError("no labels")
        return LABELS

    running = exporter(records, collector.url, labels)
    running._pass()
    assert (running.dropped, len(records)) == (8, 32)
    assert "no labels" in caplog.text
    running._pass()
    assert sizes(collector) == [32]


def test_a_decision_that_comes_back_late_changes_what_later_spans_say(exporter, records, collector):
    now = [Labels("e", 0, {"kvflags.epoch": 1})]
    running = exporter(records, collector.url, lambda: now[0])
    add(records, 1)
    running._pass()
    now[0] = Labels("e", 0, {"kvflags.epoch": 2})
    add(records, 1, first=1)
    running._pass()
    assert [b"\x0a\x0dkvflags.epoch\x12\x02\x18\x01" in body for body in collector.bodies] == [True, False]


def test_shutdown_sends_what_is_left(exporter, records, collector):
    running = exporter(records, collector.url, environ={})
    running.start()
    add(records, 700)
    running.shutdown()
    assert sizes(collector) == [512, 188]
    assert not running._thread.is_alive()


@pytest.mark.parametrize("moment", ["while idle", "inside a call"])
def test_shutdown_ends_within_a_second_although_nobody_answers(exporter, records, collector, caplog, moment):
    collector.answer.clear()
    running = exporter(records, collector.url, environ=QUICK if moment == "inside a call" else {})
    running.start()
    add(records, 3)
    if moment == "inside a call":
        collector.wait_for(bodies=1)
    started = time.monotonic()
    running.shutdown()
    assert time.monotonic() - started < 1.3
    assert "3 transfers could not be sent before the end" in caplog.text
    collector.answer.set()


def test_shutdown_without_a_collector_is_quick(exporter, records, caplog):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    running = exporter(records, url, environ={})
    running.start()
    add(records, 3)
    started = time.monotonic()
    running.shutdown()
    assert time.monotonic() - started < 0.5
    assert "3 transfers could not be sent" in caplog.text


def test_an_outage_is_said_once(exporter, records, collector, caplog):
    collector.status = 503
    caplog.set_level(logging.WARNING)
    add(records, 1)
    running = exporter(records, collector.url)
    running.start()
    collector.wait_for(bodies=3)
    assert caplog.text.count("does not take spans now (HTTP 503") == 1
    collector.status = 200
    running.shutdown()
