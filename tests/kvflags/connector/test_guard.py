# SPDX-License-Identifier: Apache-2.0
"""The guard: our failures end there, counted and said once, and fail our own tests."""

import pytest

from kvflags.connector import guard
from kvflags.connector.guard import guarded


@pytest.fixture(autouse=True)
def _fresh():
    guard._failures.clear()
    yield
    guard._failures.clear()


@guarded("fallback")
def divide(by: int) -> float:
    return 1 / by


def test_a_result_passes():
    assert divide(2) == 0.5
    assert guard.failures() == {}


def test_a_failure_becomes_the_fallback_is_counted_and_said_once(monkeypatch, caplog):
    monkeypatch.delenv("KVFLAGS_STRICT")
    assert [divide(0) for _ in range(3)] == ["fallback"] * 3
    assert guard.failures() == {f"{__name__}.divide": 3}
    assert [record.name for record in caplog.records] == ["vllm.kvflags"]
    assert "ZeroDivisionError" in caplog.text


def test_a_test_sees_it():
    with pytest.raises(ZeroDivisionError):
        divide(0)


def test_what_ends_the_process_passes(monkeypatch):
    monkeypatch.delenv("KVFLAGS_STRICT")

    @guarded(None)
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
