# SPDX-License-Identifier: Apache-2.0
"""The outcomes' thread: each interval once, unchanged until it is taken, bounded, and quick to end."""

import time

import pytest

from kvflags.flags import Facts
from kvflags.telemetry import reporter as module
from kvflags.telemetry.instruments import InstrumentName
from kvflags.telemetry.labels import Identity, front_end_labels
from kvflags.telemetry.metrics import Report
from kvflags.telemetry.reporter import INTERVAL, Reporter
from kvflags.telemetry.tally import Tally
from kvflags_collector.ingest.outcomes import decode

LABELS = front_end_labels(Identity(id="e", deployment="d", generation="g", role="decode"), None, Facts())


class Source:
    """A tally that saw some more tokens before each export."""

    def __init__(self):
        self.tally, self.asked = Tally(), 0

    def __call__(self):
        self.asked += 1
        self.tally.add(lambda interval: interval.count(InstrumentName.OUTPUT_TOKENS, self.asked))
        return [Report(LABELS, self.tally.take(), None)]


@pytest.fixture
def start():
    made = []

    def begin(url, reports, interval_ms="100", **environ):
        made.append(Reporter(reports, url, "secret", environ={INTERVAL: interval_ms, **environ}))
        made[-1].start()
        return made[-1]

    yield begin
    for one in made:
        one.shutdown(0.2)


def _tokens(bodies):
    return [point.sum_micro // 10**6 for body in bodies for point in decode(body, time.time_ns()).points]


def test_every_interval_is_sent_once_to_the_metrics_path(collector, start):
    start(collector.url, Source())
    collector.wait_for(3)
    assert _tokens(collector.bodies[:3]) == [1, 2, 3]
    assert set(collector.paths) == {"/v1/metrics"}
    assert collector.headers[0]["authorization"] == "Bearer secret"


def test_the_end_sends_what_is_left(collector, start):
    one = start(collector.url, Source(), interval_ms="3600000")
    one.shutdown()
    assert _tokens(collector.bodies) == [1]


def test_an_outage_loses_nothing_and_repeats_are_unchanged(collector, start):
    collector.status = 503
    start(collector.url, Source())
    collector.wait_for(3)
    assert len(set(collector.bodies[:3])) == 1
    refused = len(collector.bodies)
    collector.status = 200
    collector.wait_for(refused + 4)
    assert _tokens(collector.bodies[refused : refused + 4]) == [1, 2, 3, 4]


def test_what_an_outage_may_keep_is_bounded_and_said_once(collector, start, monkeypatch, caplog):
    monkeypatch.setattr(module, "_KEPT", 2)
    collector.status = 503
    source = Source()
    one = start(collector.url, source)
    collector.wait_for(6)
    collector.status = 200
    one.shutdown()
    assert len(one._bodies) <= 2
    assert caplog.text.count("the oldest are lost") == 1


def test_what_is_refused_is_not_sent_again(collector, start, caplog):
    collector.status = 400
    start(collector.url, Source())
    collector.wait_for(3)
    assert _tokens(collector.bodies[:3]) == [1, 2, 3]
    assert caplog.text.count("refused outcomes: HTTP 400") == 1


def test_a_fault_of_ours_ends_nothing(collector, start, caplog):
    source = Source()

    def reports():
        return 1 / 0 if source.asked == 1 and not caplog.records else source()

    start(collector.url, reports)
    collector.wait_for(3)
    assert "a minute of outcomes was lost" in caplog.text


def test_a_collector_that_hangs_holds_the_end_up_for_a_second(collector, start):
    collector.answer.clear()
    one = start(collector.url, Source())
    collector.wait_for(1)
    began = time.monotonic()
    one.shutdown()
    assert time.monotonic() - began < 1.5


def test_a_shutdown_without_a_start_is_harmless(collector):
    Reporter(Source(), collector.url).shutdown()
    assert collector.bodies == []


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("", 60_000), ("5000", 5_000), ("soon", 60_000), ("-1", 60_000), ("0", 100), ("99999999", 3_600_000)],
)
def test_the_interval_is_the_sdks_setting(text, milliseconds):
    assert module._interval_ms({INTERVAL: text}) == milliseconds
