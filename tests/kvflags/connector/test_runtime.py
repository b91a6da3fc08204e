# SPDX-License-Identifier: Apache-2.0
"""A worker from its construction to its end: what is put in place, what is told, what is sent."""

import threading

import pytest

from kvflags.connector import runtime as module
from kvflags.connector.agent import AgentProxy
from kvflags.connector.runtime import Runtime
from kvflags.decision import heartbeat
from kvflags.flags import Decision
from kvflags.telemetry.attributes import Name


class Beats:
    """Stands for Heartbeats: keeps what it is told."""

    def __init__(self, settings, carried, engine_id, ranks, *, on_identity):
        self.engine_id, self.ranks, self.on_identity = engine_id, ranks, on_identity
        self.known, self.started, self.stopped = {}, False, False

    def update(self, **news):
        self.known.update(news)

    def start(self):
        self.started = True

    def stop(self):
        self.stopped = True


@pytest.fixture
def beats(monkeypatch):
    made = []

    def make(*args, **kwargs):
        made.append(Beats(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(heartbeat, "Heartbeats", make)
    return made


@pytest.fixture
def run(watched, beats):
    """Makes a runtime on a plain worker, and ends it."""
    running = []

    def make(config, environ=None):
        worker = type(watched.worker)(watched.agent)
        running.append(Runtime(worker, config, environ or {}))
        return worker, running[-1]

    yield make
    for each in running:
        if each._exporter is not None:
            each._exporter._address = ("http://127.0.0.1:1", None)
        each.close()


def test_an_effective_worker(run, beats, told, configured):
    worker, runtime = run(configured(told("on")))
    assert isinstance(worker.nixl_wrapper, AgentProxy)
    assert not beats
    runtime.start(8, "BHLNC")
    (told_beats,) = beats
    assert (told_beats.engine_id, told_beats.ranks, told_beats.started) == ("engine-d", 1, True)
    assert told_beats.known["facts"] == {"backend": "CPU_ATTN", "block_size": 128, "transport": "UCX"}
    assert told_beats.known["layout"] == {
        "requested": "BHLNC", "resolved": "BHLNC", "regions": 1, "layers": 8, "effective": True,
    }  # fmt: skip
    labels = runtime._labels
    assert labels.resource[Name.BACKEND] == "CPU_ATTN"
    assert labels.resource[Name.BLOCK_SIZE] == 128
    assert (labels.resource[Name.DEPLOYMENT], labels.resource[Name.EPOCH]) == ("c/ns/d", 2)
    assert (labels.span[Name.EFFECTIVE], labels.span[Name.ROLE], labels.span[Name.MODE]) == (True, "decode", "pull")


def test_starts_once(run, beats, told, configured):
    _, runtime = run(configured(told("on")))
    runtime.start(8, "BHLNC")
    runtime.start(8, "BHLNC")
    assert len(beats) == 1


def test_a_request_that_was_dropped_is_not_effective(run, beats, told, configured):
    worker, runtime = run(configured(told("on")))
    worker.block_len_per_layer, worker.kv_cache_layout = [1] * 8, "LBHNC"
    runtime.start(8, "BHLNC")
    layout = beats[0].known["layout"]
    assert (layout["requested"], layout["resolved"], layout["effective"]) == ("BHLNC", "LBHNC", False)


def test_vllms_own_setting_is_what_was_requested(run, beats, told, configured):
    _, runtime = run(configured(told("on")), {"VLLM_KV_CACHE_LAYOUT": "LBHNC"})
    runtime.start(8, "whatever the connector says")
    assert beats[0].known["layout"]["requested"] == "LBHNC"


def test_one_rank_of_several_does_not_speak_for_all(run, beats, told, configured):
    _, runtime = run(configured(told("on"), rank=0, world_size=2))
    runtime.start(8, "BHLNC")
    assert beats[0].known["layout"]["effective"] is None
    assert runtime._labels.span[Name.EFFECTIVE] is True
    _, other = run(configured(told("on"), rank=1, world_size=2))
    other.start(8, "BHLNC")
    assert len(beats) == 1
    assert (other._labels.rank, other._labels.span[Name.WORLD_SIZE]) == (1, 2)


def test_without_nixls_telemetry_nothing_is_observed_and_heartbeats_go_on(run, beats, told, configured):
    worker, runtime = run(configured(told("on")), {"NIXL_TELEMETRY_ENABLE": "0"})
    assert not isinstance(worker.nixl_wrapper, AgentProxy)
    assert "_log_failure" not in vars(worker)
    runtime.start(8, "BHLNC")
    assert beats[0].started
    assert runtime._exporter is None


def test_without_a_collector_nothing_is_put_in_place(run, beats, told, configured):
    worker, runtime = run(configured(told("on", url=None)))
    runtime.start(8, "BHLNC")
    assert not isinstance(worker.nixl_wrapper, AgentProxy)
    assert (beats, runtime._exporter) == ([], None)


def test_a_late_decision_changes_what_later_spans_say(run, beats, told, configured):
    _, runtime = run(configured(told("off")))
    runtime.start(8, "LBHNC")
    assert runtime._labels.resource[Name.EPOCH] == 2
    beats[0].on_identity(Decision(feature="cross_layer_blocks", flag="clb", variant="off", reason="arm", epoch=3))
    assert runtime._labels.resource[Name.EPOCH] == 3
    assert runtime._labels.resource[Name.BACKEND] == "CPU_ATTN"


def test_counts_reach_the_heartbeat(run, beats, told, configured, watched):
    worker, runtime = run(configured(told("on")))
    runtime.start(8, "BHLNC")
    worker._log_failure(failure_type="handshake_failed", req_id="r", error=None)
    runtime._flushed(4)
    assert beats[0].known["exercised"] == {"ok": 0, "errors": 1}
    assert beats[0].known["dropped"] == {"spans": 4, "events": 0}


def test_the_end(run, beats, told, configured):
    worker, runtime = run(configured(told("on")))
    runtime.start(8, "BHLNC")
    worker._log_failure(failure_type="handshake_failed", req_id="r", error=None)
    runtime.close()
    assert beats[0].stopped
    assert beats[0].known["exercised"] == {"ok": 0, "errors": 1}


def test_the_end_takes_a_second_also_where_a_heartbeat_hangs(run, beats, told, configured):
    _, runtime = run(configured(told("on")))
    runtime.start(8, "BHLNC")
    let_go, over = threading.Event(), []
    beats[0].stop = lambda: over.append(let_go.wait(60))
    runtime.close()
    assert over == []
    let_go.set()
    beats[0].stop = lambda: None


@pytest.mark.parametrize(
    ("release", "text"),
    [("0.32.0", "expects same kv_cache_layout"), ("0.28.0", "compatibility hash mismatch")],
)
def test_what_a_release_says_of_differing_layouts(release, text, told):
    assert module._mismatches(module.Facts(vllm=release)) == (text,)
