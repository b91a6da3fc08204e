# SPDX-License-Identifier: Apache-2.0
"""Heartbeats over real HTTP: what is sent, how often, what becomes of late decisions, and that nothing ever escapes."""

import datetime as dt
import logging
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kvflags.decision import last_heard
from kvflags.decision.carry import Carried
from kvflags.decision.deaths import Mark, count
from kvflags.decision.heartbeat import Heartbeats
from kvflags.decision.state import State
from kvflags.flags import Decision

NOON = dt.datetime(2025, 1, 1, 12, 0, 0, 500, tzinfo=dt.UTC)


@pytest.fixture
def carried(collector, decided) -> Carried:
    return Carried(
        source="registered",
        reason="assigned",
        registration_id="8d0f",
        decision=Decision.from_json(decided),
        registered=True,
        registration={
            "registration_id": "8d0f",
            "deployment": "eu/prod/chat",
            "generation": "r41",
            "role": "decode",
            "local": None,
            "running": None,
            "facts": {"vllm": "0.32.0", "backend": None},
            "problems": [],
        },
        url=collector.url,
        heartbeat_s=0.05,
        problems=("KVFLAGS_FORCE",),
    )


@pytest.fixture
def beating(settings, carried):
    """Start a stream; every stream is stopped at the end."""
    streams: list[Heartbeats] = []

    def begin(given: Carried = carried, **options) -> Heartbeats:
        stream = Heartbeats(settings(given.url), given, "engine-1", 2, clock=lambda: NOON, **options)
        streams.append(stream)
        stream.start()
        return stream

    yield begin
    for stream in streams:
        stream.stop()


@pytest.fixture
def ledger(collector, decided):
    """The collector as a ledger of one pin: `forget` makes it answer 404 until somebody registers."""

    class FakeLedger:
        known, told, heartbeat_s = True, [decided], 0.05

        def answer(self, path: str, body: dict) -> tuple[int, dict]:
            if path.endswith("/register"):
                self.known = True
                return 200, {"decisions": self.told, "heartbeat_s": self.heartbeat_s}
            return (200, {}) if self.known else (404, {"error": {"code": "unknown_registration"}})

    fake = FakeLedger()
    collector.answer = fake.answer
    return fake


def test_a_heartbeat_as_it_is_sent(beating, collector, carried) -> None:
    stream = beating(replace(carried, heartbeat_s=60))
    assert collector.wait_for(1) == [
        {
            "seq": 1,
            "engine_id": "engine-1",
            "clock": "2025-01-01T12:00:00.000500Z",
            "ranks": 2,
            "facts": {},
            "layout": {},
            "exercised": {},
            "dropped": {},
            "problems": ["KVFLAGS_FORCE"],
        }
    ]
    assert collector.requests[0][0] == "/api/v1/engines/8d0f/heartbeat"
    stream.stop()


def test_what_is_known_goes_out_with_the_next_one(beating, collector) -> None:
    stream = beating()
    collector.wait_for(1)
    stream.update(facts={"backend": "CPU_ATTN"}, layout={"resolved": "BHLNC"}, problems=["state_dir: full; hint: x"])
    stream.update(facts={"block_size": 16}, exercised={"ok": 5, "errors": 0}, dropped={"spans": 1, "events": 0})
    stream.update(exercised={"ok": 6, "errors": 0}, problems=["KVFLAGS_FORCE"])
    already = len(collector.bodies())
    latest = collector.wait_for(already + 2)[-1]
    assert {name: latest[name] for name in ("facts", "layout", "exercised", "dropped", "problems")} == {
        "facts": {"backend": "CPU_ATTN", "block_size": 16},
        "layout": {"resolved": "BHLNC"},
        "exercised": {"ok": 6, "errors": 0},
        "dropped": {"spans": 1, "events": 0},
        "problems": ["KVFLAGS_FORCE", "state_dir"],
    }


def test_the_last_one_carries_the_last_counts(beating, collector, carried) -> None:
    stream = beating(replace(carried, heartbeat_s=60.0))
    collector.wait_for(1)
    stream.update(exercised={"ok": 200, "errors": 0})
    stream.stop()
    assert [body["exercised"] for body in collector.bodies()] == [{}, {"ok": 200, "errors": 0}]


def test_in_an_outage_there_is_no_last_one(beating, collector, carried) -> None:
    collector.answer = lambda path, body: (503, {})
    stream = beating(replace(carried, heartbeat_s=60.0))
    collector.wait_for(1)
    stream.stop()
    assert len(collector.bodies()) == 1


def test_they_are_numbered_and_keep_their_interval(beating, collector) -> None:
    began = time.monotonic()
    beating()
    bodies = collector.wait_for(6)
    # 5 intervals of 0.045 to 0.05 s.
    assert 0.2 < time.monotonic() - began < 2
    assert [body["seq"] for body in bodies][:6] == [1, 2, 3, 4, 5, 6]


def test_without_an_address_or_before_the_start_there_is_no_thread(settings, carried, collector) -> None:
    before = threading.active_count()
    silent = [Heartbeats(settings(), replace(carried, url=url), "engine-1", 1) for url in (None, "file:///s/local")]
    for one in silent:
        one.start()
    Heartbeats(settings(collector.url), carried, "engine-1", 1).stop()
    assert threading.active_count() == before
    for one in silent:
        one.stop()
    assert collector.requests == []


def test_starting_twice_makes_one_stream(beating, carried) -> None:
    stream = beating(replace(carried, heartbeat_s=60))
    stream.start()
    assert [thread.name for thread in threading.enumerate()].count("kvflags-heartbeat") == 1


# Registering again.


def test_a_forgotten_engine_registers_again_and_says_what_is_running(beating, collector, ledger, carried) -> None:
    ledger.known, adopted = False, []
    stream = beating(on_identity=adopted.append)
    stream.update(facts={"backend": "CPU_ATTN"})
    (registration,) = collector.wait_for(1, "/register")
    assert registration == {
        **carried.registration,
        "running": "on",
        "facts": {"vllm": "0.32.0", "backend": registration["facts"]["backend"]},
        "problems": ["KVFLAGS_FORCE"],
    }
    collector.wait_for(3, "/heartbeat")
    assert len(collector.bodies("/register")) == 1
    assert adopted == [carried.decision]


def test_an_engine_that_never_registered_does_so_first(beating, collector, ledger, carried, decided) -> None:
    ledger.told, adopted = [decided | {"variant": "off", "arm": "control", "epoch": 8}], []
    cut_off = replace(carried, registered=False, decision=None, source="fallback", reason="unreachable")
    beating(cut_off, on_identity=adopted.append)
    collector.wait_for(2, "/heartbeat")
    assert collector.requests[0][0].endswith("/register")
    assert collector.requests[0][1]["running"] == "off"
    # It runs what the pin says, so its spans join the comparison from here on.
    assert adopted == [Decision.from_json(ledger.told[0])]


def test_a_late_decision_for_the_other_variant_changes_epoch_and_flag_but_not_the_arm(
    beating, collector, ledger, carried, decided
) -> None:
    adopted = []
    beating(replace(carried, registered=False, decision=None), on_identity=adopted.append)
    collector.wait_for(1, "/heartbeat")
    changed = {"variant": "off", "arm": None, "comparison": "excluded", "reason": "runs_another_variant"}
    assert [decision.to_json() for decision in adopted] == [decided | changed]


def test_a_forced_engine_stays_out_of_the_comparison(beating, collector, ledger, carried, decided) -> None:
    local = {**carried.registration, "local": {"source": "KVFLAGS_FORCE", "variant": "on"}}
    adopted = []
    forced = replace(carried, registered=False, registration=local, source="local", reason="local:KVFLAGS_FORCE")
    beating(forced, on_identity=adopted.append)
    collector.wait_for(1, "/heartbeat")
    changed = {"arm": None, "comparison": "excluded", "reason": "local:KVFLAGS_FORCE"}
    assert [decision.to_json() for decision in adopted] == [decided | changed]


def test_a_late_decision_is_there_at_the_next_start(beating, collector, ledger, carried, settings, decided) -> None:
    beating(replace(carried, registered=False, decision=None))
    collector.wait_for(1, "/heartbeat")
    assert last_heard.read(State.of(settings(collector.url)), []) == Decision.from_json(decided)


def test_the_interval_is_the_registrations(beating, collector, ledger, carried) -> None:
    ledger.heartbeat_s = 60
    beating(replace(carried, registered=False))
    collector.wait_for(1, "/heartbeat")
    time.sleep(0.2)
    assert len(collector.requests) == 2


# Trouble.


def test_an_outage_is_waited_out_with_growing_pauses(beating, collector, carried) -> None:
    at = []

    def answer(path, body):
        at.append(time.monotonic())
        return (503, {}) if len(at) < 3 else (200, {})

    collector.answer = answer
    beating(replace(carried, heartbeat_s=30), jitter=lambda: 0.0)
    collector.wait_for(3)
    # Half of 1 s and half of 2 s: the jitter's lower end.
    first, second = at[1] - at[0], at[2] - at[1]
    assert 0.5 <= first < 0.8
    assert 1.0 <= second < 1.3


def test_each_kind_of_trouble_is_logged_once(beating, collector, caplog) -> None:
    collector.answer = lambda path, body: (503, {})
    with caplog.at_level(logging.WARNING, "vllm.kvflags"):
        beating()
        collector.wait_for(4)
    assert [record.message for record in caplog.records] == [
        f"kvflags: heartbeat: The collector at {collector.url[7:]} answered 503 (said once; retried)"
    ]


def test_what_a_callback_raises_stays_inside(beating, collector, ledger, carried) -> None:
    calls = []

    def broken(decision):
        calls.append(decision)
        raise RuntimeError("ours")

    beating(replace(carried, registered=False), on_identity=broken)
    collector.wait_for(2, "/heartbeat")
    assert len(calls) == 1


@pytest.mark.parametrize("status", [400, 401, 409])
def test_a_refusal_is_retried_but_not_hammered(beating, collector, carried, status) -> None:
    collector.answer = lambda path, body: (status, {})
    beating(replace(carried, heartbeat_s=30), jitter=lambda: 0.0)
    time.sleep(0.7)
    assert len(collector.requests) == 2


@pytest.mark.parametrize("kind", ["silent", "beating", "refused"])
def test_stop_takes_less_than_a_second_whatever_the_collector_does(beating, raw_server, carried, kind) -> None:
    silent = raw_server(lambda connection, over: over.wait(10))
    url = {"silent": silent.url, "beating": carried.url, "refused": "http://127.0.0.1:9"}[kind]
    stream = beating(replace(carried, url=url))
    time.sleep(0.1)
    began = time.monotonic()
    stream.stop()
    assert time.monotonic() - began < 1
    stream.update(facts={"after": "the end"})


def test_update_costs_microseconds_also_while_a_call_hangs(beating, raw_server, carried) -> None:
    stream = beating(replace(carried, url=raw_server(lambda connection, over: over.wait(10)).url))
    time.sleep(0.1)
    times = []
    for number in range(2000):
        began = time.perf_counter()
        stream.update(exercised={"ok": number})
        times.append(time.perf_counter() - began)
    # About 4 us; the bound is for a loaded machine, and far below any network.
    assert sorted(times)[1000] < 200e-6


def test_updates_from_many_threads_are_all_kept(beating, collector) -> None:
    stream = beating()

    def write(number: int) -> None:
        for step in range(100):
            stream.update(facts={f"{number}.{step}": 1})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    already = len(collector.bodies())
    assert len(collector.wait_for(already + 2)[-1]["facts"]) == 800


# Unclean stops.


def _marks(state: State) -> list[Path]:
    return list(state.folder.glob(f"{state.key}.*.mark.*"))


def test_a_stream_that_stops_is_a_clean_stop_and_ends_the_row_of_deaths(beating, collector, settings, carried) -> None:
    state = State.of(settings(collector.url))
    state.prepare()
    state.path("decode.mark.0123456789abcdef.front").touch()
    stream = beating()
    assert count(state, "decode", []) == 1
    assert len(_marks(state)) == 2
    stream.stop()
    assert _marks(state) == []


def test_a_state_folder_that_cannot_be_used_is_reported(settings, carried, collector, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    unusable = settings(collector.url, KVFLAGS_STATE_DIR=str(tmp_path / "file"))
    stream = Heartbeats(unusable, carried, "engine-1", 1)
    stream.start()
    assert collector.wait_for(1)[0]["problems"] == ["KVFLAGS_FORCE", "state_dir"]
    stream.stop()


def test_the_mark_is_the_engines_own(settings, carried, collector, beating) -> None:
    stream = beating(replace(carried, heartbeat_s=60))
    collector.wait_for(1)
    state = State.of(settings(collector.url))
    front = Mark(state, "decode", carried.registration_id)
    front.leave([])
    assert len(_marks(state)) == 2
    stream.stop()
    front.clean(ran=False)
    assert _marks(state) == []
