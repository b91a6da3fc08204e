# SPDX-License-Identifier: Apache-2.0
"""The last payload on disk: exact, bounded, for its owner alone, and no trouble to who sends."""

import logging
import os
import stat

import pytest

from kvflags.files import Distrusted
from kvflags.sent import MOST_BYTES, Kind, LastSent, Payload, Result, read

TO = "http://collector:4318/v1/traces"


class Clock:
    """Both clocks, which stand until the test moves them."""

    def __init__(self):
        self.now = 1_764_771_000.5

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sent(tmp_path, clock):
    return LastSent(str(tmp_path / "state"), Kind.TRACES, TO, clock=clock, monotonic=clock)


@pytest.fixture
def last(tmp_path):
    return lambda: read(str(tmp_path / "state"), Kind.TRACES)


def test_it_is_kept_as_it_was_sent(sent, last):
    assert last() is None
    sent.note(b"\n\0 binary \xff", Result.LATER, "HTTP 503 Service Unavailable")
    sent.write()
    assert last() == Payload(
        kind="traces",
        to=TO,
        at="2025-12-03T14:10:00.500Z",
        pid=os.getpid(),
        result="later",
        says="HTTP 503 Service Unavailable",
        size=11,
        body=b"\n\0 binary \xff",
    )


def test_it_is_written_every_five_seconds_and_at_the_end(sent, last, clock):
    bodies = []
    for number in range(13):
        sent.note(b"%d" % number, Result.TAKEN)
        sent.write()
        bodies.append(last().body)
        clock.now += 0.5
    assert bodies == [b"0"] * 10 + [b"10"] * 3
    sent.write(at_once=True)
    assert last().body == b"12"


def test_what_waited_is_written_although_nothing_more_is_sent(sent, last, clock):
    for body in (b"first", b"last"):
        sent.note(body, Result.TAKEN)
        sent.write()
    clock.now += 5
    sent.write()
    assert last().body == b"last"


def test_what_is_too_large_is_told_and_not_kept(sent, last, tmp_path):
    sent.note(b"x" * MOST_BYTES, Result.TAKEN)
    sent.write(at_once=True)
    assert last().body == b"x" * MOST_BYTES
    sent.note(b"x" * (MOST_BYTES + 1), Result.REFUSED, "é" * 10_000)
    sent.write(at_once=True)
    assert (last().size, last().body) == (MOST_BYTES + 1, None)
    [file] = (tmp_path / "state").iterdir()
    assert file.stat().st_size < 5_000


def test_nobody_else_can_read_it(sent, last, tmp_path):
    sent.note(b"abc", Result.TAKEN)
    sent.write()
    [file] = (tmp_path / "state").iterdir()
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    file.chmod(0o644)
    with pytest.raises(Distrusted, match="can be read by others"):
        last()


@pytest.mark.parametrize("content", [b"", b"abc", b"[]\n", b"{}\n", b'{"kind": "traces", "kept": true}\n', b"\xff\n"])
def test_what_is_none_of_ours_is_no_payload(tmp_path, content):
    path = tmp_path / "last-traces.sent"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ValueError, match="it holds no payload"):
        read(str(tmp_path), Kind.TRACES)


def test_a_folder_that_cannot_be_written_is_said_once_and_hurts_nobody(tmp_path, caplog, clock):
    (tmp_path / "file").write_text("in the way")
    sent = LastSent(str(tmp_path / "file"), Kind.METRICS, TO, clock=clock, monotonic=clock)
    with caplog.at_level(logging.INFO, "vllm.kvflags"):
        for _ in range(3):
            sent.note(b"abc", Result.TAKEN)
            sent.write(at_once=True)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "cannot be kept" in caplog.text


def test_without_a_folder_nothing_is_kept(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    sent = LastSent(None, Kind.TRACES, TO)
    sent.note(b"abc", Result.TAKEN)
    sent.write(at_once=True)
    assert list(tmp_path.iterdir()) == []
