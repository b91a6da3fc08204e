# SPDX-License-Identifier: Apache-2.0
"""Where KVFLAGS_TELEMETRY=local puts what would be sent: files on this machine, bounded, for their owner alone.

A file holds bodies end to end, which is one OTLP message again: it can be decoded, or posted to a collector, whole.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from kvflags.sent import Kind, LastSent, Result
from kvflags.telemetry.answer import Answer, Outcome

__all__ = ["Shelf"]

# A collector takes a file of that size in one request. All together at most 256 MiB: about 350,000 spans.
_FILE_BYTES = 1 << 20
_FILES = 256


class Shelf:
    """One process's files of one signal in `folder`. Stands in for `Wire`, and like it is of one thread only."""

    def __init__(self, folder: str, state_dir: str | None, signal: str) -> None:
        self._folder, self._signal = Path(folder), signal
        self._file: int | None = None
        self._length = 0
        self._sent = LastSent(state_dir, Kind(signal), self._folder.as_uri())
        self.timeout_s = 0.0  # nobody is waited for

    def send(self, body: bytes) -> Answer:
        """Put it down. What cannot be (a full disk, a read-only folder) is refused, and so counted as lost."""
        try:
            self._put(body)
        except OSError as error:
            self._leave()
            answer = Answer(Outcome.REFUSED, says=f"{type(error).__name__}: {error}")
        else:
            answer = Answer(Outcome.STORED)
        result = Result.KEPT if answer.outcome is Outcome.STORED else Result.REFUSED
        self._sent.note(body, result, answer.says)
        return answer

    def rest(self) -> None:
        self._sent.write()

    def close(self) -> None:
        self._sent.write(at_once=True)
        self._leave()

    def _put(self, body: bytes) -> None:
        if self._file is None or self._length + len(body) > _FILE_BYTES:
            self._leave()
            self._file, self._length = self._begun(), 0
        written = os.write(self._file, body)
        if written < len(body):
            # Half a body would make the whole file unreadable.
            os.ftruncate(self._file, self._length)
            raise OSError("the disk is full")
        self._length += written

    def _begun(self) -> int:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room()
        name = f"{self._signal}-{time.time_ns()}-{os.getpid()}.otlp"
        return os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _make_room(self) -> None:
        """The files last written to longest ago go first; several processes may do it at once."""
        ages = []
        for path in self._folder.glob("*.otlp"):
            with suppress(FileNotFoundError):
                ages.append((path.stat().st_mtime_ns, path))
        for _, path in sorted(ages)[: max(0, len(ages) - _FILES + 1)]:
            path.unlink(missing_ok=True)

    def _leave(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
