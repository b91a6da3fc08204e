# SPDX-License-Identifier: Apache-2.0
"""Files that hold what is the owner's alone, and hold it whole."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["Distrusted", "read_own", "replace"]


class Distrusted(OSError):
    """What lies there may be somebody else's: others can write it, so it is theirs, or read it, so it is no secret."""


def replace(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Replace the file as a whole: a reader sees the old content or the new one, also after a crash where `durable`.

    Makes the folder. File and folder can be read by their owner alone. Raises OSError as the operating system does.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.")
    try:
        # mkstemp makes files 0600.
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def read_own(path: Path, most: int) -> bytes:
    """At most that many bytes of a file that is ours alone. Raises Distrusted where it is not, or OSError."""
    # A link may lead anywhere, and opening a pipe would wait for somebody to write into it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if problem := _distrusted(os.fstat(descriptor)):
            raise Distrusted(problem)
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)


def _distrusted(found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "is no file"
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    return "can be read by others (chmod 600)" if found.st_mode & 0o077 else ""
