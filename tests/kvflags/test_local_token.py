# SPDX-License-Identifier: Apache-2.0
"""The file with the admin's token is believed only where nobody else could have written or read it."""

import os
from pathlib import Path

import pytest

from kvflags.local_token import LocalToken, place, read

TOKEN = "kvf_" + "a-Z0_" * 8 + "xyz"


@pytest.fixture
def path(tmp_path) -> Path:
    """A file as a collector leaves it."""
    made = tmp_path / "collector-4318.token"
    made.write_text(TOKEN + "\n")
    made.chmod(0o600)
    return made


def test_it_is_read(path):
    assert read(path) == LocalToken(path, TOKEN)


def test_none_is_no_problem(tmp_path):
    assert read(tmp_path / "none") == LocalToken(tmp_path / "none")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o777])
def test_what_others_can_read_or_write_is_not_used(path, mode):
    path.chmod(mode)
    assert read(path) == LocalToken(path, problem="can be read by others (chmod 600)")


def test_what_belongs_to_another_user_is_not_used(path, monkeypatch):
    if os.geteuid() == 0:
        os.chown(path, 12_345, 12_345)
    else:
        # Only root can give a file away; to anybody else the test has to say that somebody else is reading.
        monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    assert read(path) == LocalToken(path, problem="belongs to another user")


@pytest.mark.parametrize(
    "text", ["", "\n", "kvf_short", TOKEN[:-1], TOKEN + "x", TOKEN * 9, f"Bearer {TOKEN}", "é" * 47]
)
def test_what_is_no_token_is_not_used(path, text):
    path.write_text(text)
    assert read(path) == LocalToken(path, problem="holds no token")


def test_what_is_no_plain_file_is_not_opened(tmp_path, path):
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir()
    assert read(tmp_path / "link").problem.startswith("cannot be read: ")
    assert read(tmp_path / "pipe").problem == "is no file"
    assert read(tmp_path / "folder").problem == "is no file"


def test_it_lies_with_what_is_kept_and_is_named_by_the_port():
    assert place(4318, {"HOME": "/home/ada"}) == Path("/home/ada/.local/state/kvflags/collector-4318.token")
    assert place(1, {"HOME": "/home/ada", "XDG_STATE_HOME": "/x"}) == Path("/x/kvflags/collector-1.token")
    assert place(1, {"KVFLAGS_STATE_DIR": "/own"}) == Path("/own/collector-1.token")
    assert place(1, {}) is None
