# SPDX-License-Identifier: Apache-2.0
"""A rollout at a glance, and watched: in a pipe, in a terminal, through a restart of the collector, until Ctrl-C."""

import copy
import io
import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import contextmanager

import httpx
import pytest

from kvflags_cli.output import console
from kvflags_cli.overview import overview, same
from kvflags_cli.render.changes import changes
from kvflags_cli.render.interval import bar, reach
from kvflags_cli.render.overview import tree

KEY = "cross-layer-blocks"
WHY = ("--reason", "because", "--author", "ada")


@pytest.fixture
def rolling(kvflags, fleet):
    """One deployment, treated from its second generation on."""
    kvflags("flags", "create", KEY, "--feature", "cross_layer_blocks", "--baseline", "0", "--quiet", "0", *WHY)
    fleet.pair("prod/chat/a", "r1")
    kvflags("rollout", "set", KEY, "100%", *WHY)
    fleet.pair("prod/chat/a", "r2")
    return fleet


@contextmanager
def watching(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE):
    command = [sys.executable, "-m", "kvflags_cli", "rollout", "get", KEY, "--watch", *arguments]
    with subprocess.Popen(command, stdout=stdout, stderr=stderr, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _until(stream, words):
    """Lines up to the one that has the words in it."""
    lines = []
    for line in stream:
        lines.append(line)
        if words in line:
            return lines
    raise AssertionError(f"it ended before it said {words!r}: {lines}")


def _interrupted(process):
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    return process.returncode


def test_at_a_glance(kvflags, rolling):
    shown = kvflags("rollout", "get", KEY)
    assert shown.code == 0
    assert (
        shown.out
        == """\
… WAITING  cross-layer-blocks  running
├── why          1 treated deployment in the comparison; 8 are needed.
│                0 control deployments in the comparison; 8 are needed.
│                0.0 days with 25% or more treated; 7 are needed.
│                No outcomes were received (time to first token, inter-token latency): transfers alone decide nothing.
│   next         Raise the percentage, or enrol more deployments.
│   last change  set_target by ada: because
├── RAMP
│   └── target           100%
│       realised         100 %: 1 of 1 treated
│       running treated  2 engines
│       to replace       nothing
├── HEALTH
│   └── all  ✓ fine, 10 of 10
├── GUARDRAILS AND GOALS
│   └── None yet: they appear with the first deployments that were measured on both sides.
└── as of 2026-12-01 12:00:00 UTC
"""
    )


def test_as_a_document(kvflags, rolling):
    shown = kvflags("rollout", "get", KEY, "--json").document
    page = httpx.get(f"{rolling.url}/rollouts/{KEY}.json").json()
    assert (shown["schema"], shown["kind"]) == ("kvflags/1", "rollout")
    assert same(shown["data"], overview(page))


def test_an_unknown_flag(kvflags, fleet):
    for more in ((), ("--watch",), ("--watch", "--json")):
        assert kvflags("rollout", "get", "nope", *more).code == 2


def test_in_a_pipe_each_change_is_a_line_until_the_keyboard_interrupts(kvflags, rolling):
    with watching() as process:
        first = _until(process.stdout, "to replace: ")
        assert [line.split("UTC  ")[1] for line in first[1:4]] == [
            "phase: running\n",
            "revision: 2, set_target by ada: because\n",
            "target: 100%, realised 100 %: 1 of 1 treated\n",
        ]
        kvflags("rollout", "pause", KEY, "--reason", "a release week", "--author", "ada")
        _until(process.stdout, "phase: paused")
        line = process.stdout.readline()
        assert line.endswith("revision: 3, pause by ada: a release week\n")
        process.send_signal(signal.SIGINT)
        assert (process.wait(20), process.stderr.read()) == (130, "")


def test_as_json_each_change_is_a_document_on_a_line(kvflags, rolling):
    with watching("--json") as process:
        first = json.loads(process.stdout.readline())
        kvflags("rollout", "pause", KEY, *WHY)
        second = json.loads(process.stdout.readline())
        assert [one["data"]["flag"]["phase"] for one in (first, second)] == ["running", "paused"]
        assert _interrupted(process) == 130


def test_it_goes_on_when_the_collector_was_away(kvflags, free_port, monkeypatch):
    monkeypatch.setenv("KVFLAGS_COLLECTOR_URL", f"http://127.0.0.1:{free_port}")
    with _serving(free_port):
        kvflags("flags", "create", KEY, "--feature", "cross_layer_blocks", *WHY)
        watched = watching()
        process = watched.__enter__()
        _until(process.stdout, "to replace: ")
    try:
        assert "cannot reach the collector" in process.stderr.readline()
        with _serving(free_port):
            assert process.stderr.readline() == "the collector answers again\n"
            kvflags("rollout", "set", KEY, "5%", *WHY)
            _until(process.stdout, "phase: running")
            assert _interrupted(process) == 130
    finally:
        watched.__exit__(None, None, None)


@contextmanager
def _serving(port):
    command = [sys.executable, "-m", "kvflags_cli", "serve", "--port", str(port), "--grpc-port", "off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert "ready" in process.stdout.readline()
            yield
        finally:
            process.terminate()
            process.wait(20)


def test_in_a_terminal_it_is_drawn_again_in_place_and_leaves_the_cursor(kvflags, rolling, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm-256color")
    ours, theirs = pty.openpty()
    with watching(stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        _read_until(ours, b"running")
        kvflags("rollout", "kill", KEY, *WHY)
        drawn = _read_until(ours, b"KILL SWITCH SET")
        assert b"\x1b[1A\x1b[2K" in drawn
        process.send_signal(signal.SIGINT)
        assert b"\x1b[?25h" in _read_until(ours, None)
        assert process.wait(20) == 130
    os.close(ours)


def _read_until(terminal, words):
    text = b""
    while words is None or words not in text:
        try:
            text += os.read(terminal, 65536)
        except OSError:
            assert words is None, text
            return text
    return text


EFFECT = {"change": -0.19, "low": -0.27, "high": -0.1}


@pytest.mark.parametrize(
    ("effect", "drawn"),
    [
        (EFFECT, "├───●───┤   │            "),
        ({"change": 0.0, "low": -0.01, "high": 0.01}, "            ●            "),
        ({"change": 0.02, "low": None, "high": None}, "◂───────────┼●──────────▸"),
        ({"change": -1.0, "low": -1.0, "high": 0.3}, "●───────────┼─────────┤  "),
        ({"change": None, "low": None, "high": None}, ""),
    ],
)
def test_an_interval_as_a_bar(effect, drawn):
    assert bar(effect, reach([EFFECT])) == drawn


def test_the_axis_reaches_as_far_as_the_widest_but_not_for_ever():
    assert reach([]) == 0.05
    assert reach([EFFECT]) == pytest.approx(0.3147, abs=1e-4)
    assert reach([{"low": -1.0, "change": 0.0, "high": None}, EFFECT]) == 2.1


@pytest.fixture
def document(kvflags, rolling):
    return kvflags("rollout", "get", KEY, "--json").document["data"]


LATENCY = EFFECT | {
    "outcome": "inter_token_latency",
    "role": "guard",
    "limit": "<+3%",
    "standing": "met",
    "treated": 12,
    "control": 12,
}
FAILED = LATENCY | {
    "outcome": "failed_transfers",
    "change": 1.9,
    "low": -0.1,
    "high": None,
    "limit": "<x3",
    "standing": "open",
}


def _drawn(document):
    text = io.StringIO()
    console(width=100, file=text).print(tree(document))
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_guardrails_have_a_bar_each_on_one_axis(document):
    lines = _drawn(document | {"outcomes": [LATENCY, FAILED]})
    at = lines.index("├── GUARDRAILS AND GOALS")
    assert lines[at + 1 : at + 4] == [
        "│   └── OUTCOME              CHANGE  INTERVAL                   LIMIT  TREATED  STANDING",
        "│       inter token latency  -19.0%          ├─●┤│               <+3%       12  ✓ within its limit",
        "│       failed transfers       x2.9             ├┼───────────●    <x3       12  ? undecided",
    ]


def test_what_could_make_the_data_lie_is_named_and_an_alarm_shown(document):
    health = [*document["health"]]
    health[1] = {"id": "effective", "name": "Effective", "standing": "bad", "value": "50%", "says": "90% are needed"}
    alarm = {"kind": "mixed_generation", "deployment": "p/q/r", "generation": "r1", "says": "layouts differ"}
    lines = _drawn(document | {"health": health, "alarms": [alarm]})
    assert "│   └── Effective  ✗ wrong 50%: 90% are needed" in lines
    assert "│                  ✓ fine, 9 of 10" in lines
    assert "│   └── mixed_generation  layouts differ" in lines


def test_what_differs_between_two_looks(document):
    assert list(changes(document, document | {"generated_at": "2026-12-01T12:00:02Z"})) == []
    more = copy.deepcopy(document) | {"outcomes": [LATENCY]}
    more["banner"]["treated_engines"] = 4
    more["health"][5] |= {"standing": "warn", "value": "120"}
    told = list(changes(document, more))
    assert told == [
        "running treated: 4 engines",
        "spans dropped: ! look into it 120 (engines could not send them)",
        "inter token latency: ✓ within its limit -19.0% [-27.0% to -10.0%], limit <+3%",
    ]
    growing = copy.deepcopy(more)
    growing["health"][5]["value"] = "240"
    assert (list(changes(more, growing)), same(more, growing)) == ([], True)
    assert list(changes(more, more | {"outcomes": []})) == ["inter token latency: over"]


def test_a_step_s_time_is_told_by_its_end_and_passes_in_silence(document):
    ramp = {
        "steps": [{"says": "5%", "hold_s": 259_200}, {"says": "25%", "hold_s": 259_200}],
        "at": 0,
        "since": "2026-12-01T12:00:00Z",
        "waiting_for": ["time: 1 min of 3 d", "sample: 0 of 1 treated deployments are effective"],
    }
    first, later = document | {"ramp": ramp}, document | {"ramp": ramp | {"waiting_for": ["time: 1 d of 3 d"]}}
    assert list(changes(document, first)) == [
        "ramp: step 1 of 2, 5%",
        "next step: time: until 2026-12-04 12:00:00 UTC; sample: 0 of 1 treated deployments are effective",
    ]
    assert list(changes(first, later)) == ["next step: time: until 2026-12-04 12:00:00 UTC"]
    assert same(later, document | {"ramp": ramp | {"waiting_for": ["time: 2 d of 3 d"]}})
