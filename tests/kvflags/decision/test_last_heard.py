# SPDX-License-Identifier: Apache-2.0
"""The decision last heard: kept whole, for one generation only, and never in the way of a start."""

import stat

import pytest

from kvflags.decision import last_heard
from kvflags.decision.state import State
from kvflags.flags import Decision


@pytest.fixture
def decision(decided) -> Decision:
    return Decision.from_json(decided)


def state(folder, generation: str = "r41", url: str = "http://c", deployment: str = "a/b") -> State:
    return State(str(folder), url, deployment, generation)


def files(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_is_read_as_it_was_written(tmp_path, decision) -> None:
    problems: list[str] = []
    kept = state(tmp_path / "deep" / "state")
    last_heard.remember(kept, decision, problems)
    assert last_heard.read(state(tmp_path / "deep" / "state"), problems) == decision
    assert problems == []


def test_nothing_was_heard_yet(tmp_path) -> None:
    problems: list[str] = []
    assert last_heard.read(state(tmp_path / "none"), problems) is None
    assert problems == []


@pytest.mark.parametrize("other", [{"generation": "r42"}, {"url": "http://d"}, {"deployment": "a/c"}])
def test_another_generation_collector_or_deployment_hears_nothing_of_it(tmp_path, decision, other) -> None:
    last_heard.remember(state(tmp_path), decision, [])
    assert last_heard.read(state(tmp_path, **other), []) is None


def test_a_flag_that_is_gone_is_forgotten(tmp_path, decision) -> None:
    last_heard.remember(state(tmp_path), decision, [])
    last_heard.remember(state(tmp_path), None, [])
    assert files(tmp_path) == []


def test_the_file_is_the_owners_alone_and_no_draft_stays(tmp_path, decision) -> None:
    folder = tmp_path / "state"
    last_heard.remember(state(folder), decision, [])
    (name,) = files(folder)
    assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_same_again_does_not_touch_the_disk(tmp_path, decision) -> None:
    last_heard.remember(state(tmp_path), decision, [])
    before = (tmp_path / files(tmp_path)[0]).stat().st_ino
    last_heard.remember(state(tmp_path), decision, [])
    assert (tmp_path / files(tmp_path)[0]).stat().st_ino == before


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"variant": "on"}', b"\xff\xfe", b"[" * 70_000])
def test_a_file_that_cannot_be_read_is_a_problem_and_is_replaced(tmp_path, decision, content) -> None:
    kept = state(tmp_path)
    last_heard.remember(kept, decision, [])
    (tmp_path / files(tmp_path)[0]).write_bytes(content)
    problems: list[str] = []
    assert last_heard.read(kept, problems) is None
    assert [problem.partition(": ")[0] for problem in problems] == ["state_dir"]
    last_heard.remember(kept, decision, [])
    assert last_heard.read(kept, []) == decision


def test_a_folder_that_cannot_be_made_is_a_problem(tmp_path, decision) -> None:
    (tmp_path / "file").write_text("")
    kept = state(tmp_path / "file" / "state")
    problems: list[str] = []
    assert last_heard.read(kept, problems) is None
    last_heard.remember(kept, decision, problems)
    last_heard.remember(kept, None, problems)
    assert [problem.partition(": ")[0] for problem in problems] == ["state_dir"] * 3
    assert all("KVFLAGS_STATE_DIR" in problem for problem in problems)


def test_a_disk_that_fills_up_leaves_the_old_decision(tmp_path, decision, monkeypatch) -> None:
    kept = state(tmp_path)
    last_heard.remember(kept, decision, [])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    problems: list[str] = []
    last_heard.remember(kept, Decision.from_json(decision.to_json() | {"epoch": 8}), problems)
    assert ["No space left" in problem for problem in problems] == [True]
    assert last_heard.read(kept, []) == decision
    assert len(files(tmp_path)) == 1
