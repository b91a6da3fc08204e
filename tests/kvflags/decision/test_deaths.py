# SPDX-License-Identifier: Apache-2.0
"""Unclean stops: counted once per start, by processes that really die, and never among the living."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvflags.decision.deaths import Mark, count
from kvflags.decision.state import State

ENGINE = """
import sys
from kvflags.decision.deaths import Mark, clean_at_exit
from kvflags.decision.state import State
folder, registration, ending = sys.argv[1:4]
state = State(folder, "http://c", "a/b", "r41")
problems = []
front = Mark(state, "prefill", registration)
front.leave(problems)
clean_at_exit(front)
worker = Mark(state, "prefill", registration, "engine-1")
if ending != "loading":
    worker.leave(problems)
assert not problems, problems
print("up", flush=True)
sys.stdin.readline()
if ending == "crash":
    raise RuntimeError("Engine core initialization failed")
if ending == "ctrl-c":
    raise KeyboardInterrupt
if ending == "clean":
    worker.clean(ran=True)
"""


@pytest.fixture
def state(tmp_path) -> State:
    return State(str(tmp_path / "state"), "http://c", "a/b", "r41")


@pytest.fixture
def start(state) -> Iterator[Callable[..., subprocess.Popen]]:
    """An engine in a process of its own that waits to be told to end in the way named."""
    running: list[subprocess.Popen] = []

    def begin(registration: str, ending: str) -> subprocess.Popen:
        command = [sys.executable, "-c", ENGINE, str(state.folder), registration, ending]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet, text=True)
        running.append(process)
        assert process.stdout.readline() == "up\n"
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen) -> None:
    process.communicate("\n", timeout=10)


def died(state: State, role: str = "prefill") -> int:
    problems: list[str] = []
    number = count(state, role, problems)
    assert problems == []
    return number


def test_nothing_ran_yet(state) -> None:
    assert died(state) == 0


def test_a_living_engine_is_no_death_and_a_killed_one_is_one(state, start) -> None:
    process = start("r1", "clean")
    assert died(state) == 0
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert died(state) == 1


@pytest.mark.parametrize(
    ("ending", "deaths"),
    [
        ("clean", 0),
        ("loading", 0),  # stopped before it was up: nobody's fault
        ("ctrl-c", 1),  # the front end left, but its worker was never shut down
        ("crash", 1),  # an exception ended the front end, and the worker with it: one start, one death
        ("worker", 1),  # the worker died; the front end then stopped in good order
    ],
)
def test_how_an_engine_ends(state, start, ending, deaths) -> None:
    end(start("r1", ending))
    assert died(state) == deaths


def test_deaths_add_up_until_one_ran_and_stopped_cleanly(state, start) -> None:
    for number in (1, 2, 3):
        end(start(f"r{number}", "crash"))
        assert died(state) == number
    end(start("r4", "loading"))
    assert died(state) == 3
    end(start("r5", "clean"))
    assert died(state) == 0


def test_another_role_or_generation_has_its_own_row(state, start) -> None:
    end(start("r1", "crash"))
    assert died(state, "decode") == 0
    assert died(State(str(state.folder), "http://c", "a/b", "r42")) == 0


def test_two_engines_of_one_process_are_alive_to_each_other(state) -> None:
    problems: list[str] = []
    one, other = Mark(state, "prefill", "r1"), Mark(state, "prefill", "r2")
    one.leave(problems)
    assert died(state) == 0
    other.leave(problems)
    other.clean(ran=True)
    assert died(state) == 0
    one.clean(ran=True)
    assert (problems, list(state.folder.iterdir())) == ([], [])


def test_a_forked_child_does_not_keep_its_dead_parent_alive(state) -> None:
    up, hold = os.pipe(), os.pipe()
    parent = os.fork()
    if parent == 0:
        Mark(state, "prefill", "r1").leave([])
        if os.fork() == 0:
            os.close(hold[1])
            os.write(up[1], b"x")
            os.read(hold[0], 1)
        os._exit(0)
    os.waitpid(parent, 0)
    os.read(up[0], 1)
    try:
        assert died(state) == 1
    finally:
        for handle in (*up, *hold):
            os.close(handle)


def test_old_marks_are_swept(state) -> None:
    state.prepare()
    for number in range(120):
        state.path(f"prefill.mark.{number:04}.front").touch(mode=0o600)
    old = state.path("prefill.mark.0000.front")
    os.utime(old, (0, 0))
    assert died(state) == 100
    assert len(list(state.folder.iterdir())) == 100
    assert not old.exists()


def test_where_nothing_can_be_written_nothing_is_counted(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    problems: list[str] = []
    state = State(str(tmp_path / "file"), "http://c", "a/b", "r41")
    mark = Mark(state, "prefill", "r1")
    assert count(state, "prefill", problems) == 0
    mark.leave(problems)
    mark.clean(ran=True)
    assert [problem.partition(": ")[0] for problem in problems] == ["state_dir"] * 2


def test_marks_name_nothing_of_the_engine(state) -> None:
    Mark(state, "prefill", "a-registration", "an-engine").leave([])
    (name,) = (path.name for path in Path(state.folder).iterdir())
    assert "engine" not in name
    assert "registration" not in name
