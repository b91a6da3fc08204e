# SPDX-License-Identifier: Apache-2.0
"""Files that hold what is the owner's alone, and hold it whole."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["replace"]


def replace(path: Path, text: str) -> None:
    """Replace the file as a whole: a reader sees the old text or the new one, also after a crash. Makes the folder.

    File and folder can be read by their owner alone. Raises OSError as the operating system does.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.")
    try:
        # mkstemp makes files 0600.
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
