# SPDX-License-Identifier: Apache-2.0
"""Small files that outlive a process: one name per (collector, deployment, generation), atomic, for the owner alone.

Everything here raises OSError as the operating system does; callers turn that into a problem, since a directory that
cannot be written (a read-only root, no home) must not stop an engine.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from kvflags.files import replace
from kvflags.settings import Settings

__all__ = ["State", "state_problem"]

# A last-heard decision is below 1 kB; what is larger is not ours.
_MAX_FILE = 65_536


class State:
    """The files of one (collector, deployment, generation) under `folder`. Creates nothing until it is written to."""

    def __init__(self, folder: str, url: str, deployment: str, generation: str) -> None:
        self.folder = Path(folder)
        # Hashed, because a deployment's name has slashes and may be longer than a file's.
        named = json.dumps([url, deployment, generation])
        self.key = hashlib.sha256(named.encode()).hexdigest()[:32]

    @classmethod
    def of(cls, settings: Settings) -> State | None:
        """None without collector, deployment or folder: then nothing is kept, and two engines cannot mix theirs."""
        if not (settings.state_dir and settings.collector_url and settings.deployment):
            return None
        return cls(settings.state_dir, settings.collector_url, settings.deployment, settings.generation)

    def path(self, suffix: str) -> Path:
        return self.folder / f"{self.key}.{suffix}"

    def prepare(self) -> None:
        """Make the folder. What is in it says what runs where, so it is the owner's alone."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def read(self, suffix: str) -> Any | None:  # noqa: ANN401 (JSON)
        """The document in the file; None where there is none. A file that is not JSON raises ValueError."""
        try:
            with self.path(suffix).open("rb") as file:
                return json.loads(file.read(_MAX_FILE))
        except FileNotFoundError:
            return None
        except RecursionError:
            raise ValueError("too deeply nested") from None

    def write(self, suffix: str, document: Any) -> None:  # noqa: ANN401 (JSON)
        """Replace the file as a whole: a reader sees the old document or the new one, also after a crash."""
        replace(self.path(suffix), json.dumps(document))

    def remove(self, suffix: str) -> None:
        self.path(suffix).unlink(missing_ok=True)


def state_problem(what: str, error: Exception) -> str:
    """The problem to report when a file could not be used."""
    return f"state_dir: {what}: {error}; hint: set KVFLAGS_STATE_DIR to a directory that the engine can write to"
