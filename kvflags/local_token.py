# SPDX-License-Identifier: Apache-2.0
"""The admin's token of a collector on this machine: a file that only its owner can read, named by the collector's port.

The collector leaves it there, the command line finds it: both ask here for the place, and for what may be believed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kvflags.environ import Reader

__all__ = ["LocalToken", "place", "read"]

_TOKEN = re.compile(r"kvf_[A-Za-z0-9_-]{43}")
# The token and the line's end; whatever is longer holds something else.
_MOST_BYTES = 64


class LocalToken(NamedTuple):
    """value: empty where there is none, or none to be used. problem: why what lies there is not used, in words."""

    path: Path
    value: str = ""
    problem: str = ""


def place(port: int, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where the token of a collector on this port lies; None where there is no folder for state (no HOME)."""
    folder = Reader(environ).state_dir("KVFLAGS_STATE_DIR")
    return Path(folder) / f"collector-{port}.token" if folder else None


def read(path: Path) -> LocalToken:
    """The token in the file, if it is ours alone: what others can write is theirs, what they can read is no secret."""
    try:
        # A link may lead anywhere, and opening a pipe would wait for somebody to write into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return LocalToken(path)
    except OSError as error:
        return LocalToken(path, problem=f"cannot be read: {error.strerror}")
    try:
        if problem := _distrusted(os.fstat(descriptor)):
            return LocalToken(path, problem=problem)
        text = os.read(descriptor, _MOST_BYTES).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    return LocalToken(path, text) if _TOKEN.fullmatch(text) else LocalToken(path, problem="holds no token")


def _distrusted(found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "is no file"
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    return "can be read by others (chmod 600)" if found.st_mode & 0o077 else ""
