# SPDX-License-Identifier: Apache-2.0
"""The admin's token of a collector on this machine: a file that only its owner can read, named by the collector's port.

The collector leaves it there, the command line finds it: both ask here for the place, and for what may be believed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kvflags.environ import Reader
from kvflags.files import Distrusted, read_own

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
    """The token in the file, if it is ours alone."""
    try:
        text = read_own(path, _MOST_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return LocalToken(path)
    except Distrusted as distrusted:
        return LocalToken(path, problem=str(distrusted))
    except OSError as error:
        return LocalToken(path, problem=f"cannot be read: {error.strerror}")
    return LocalToken(path, text) if _TOKEN.fullmatch(text) else LocalToken(path, problem="holds no token")
