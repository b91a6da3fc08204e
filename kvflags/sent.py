# SPDX-License-Identifier: Apache-2.0
"""The last payload of each kind that an engine on this machine sent: what `kvflags telemetry show` prints.

One file for each kind in the folder for state, the owner's alone: a line of JSON that says what, to whom, when and with
which result, then the body as it was before compression. The token is a header, and so is never in it.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from kvflags.files import read_own, replace

__all__ = ["MOST_BYTES", "Kind", "LastSent", "Payload", "Result", "read"]

# A full batch of 512 spans has 400 kB. Of what is larger only the head is kept, which still says how large it was.
MOST_BYTES = 1 << 20
_HEAD_BYTES = 16_384

# Spans leave twice a second; a file that is replaced twice a second is work for a disk, and for nobody's eyes.
_EVERY_S = 5.0

_log = logging.getLogger("vllm.kvflags")


class Kind(StrEnum):
    """What an engine sends."""

    REGISTRATION = "registration"
    HEARTBEAT = "heartbeat"
    TRACES = "traces"
    METRICS = "metrics"


class Result(StrEnum):
    """What became of it: taken, not taken now (it is tried again), refused for good; kept here and sent to nobody."""

    TAKEN = "taken"
    LATER = "later"
    REFUSED = "refused"
    KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """One request. `at` is RFC 3339 in UTC, `size` in bytes; `body` is None where it was too large to be kept."""

    kind: str
    to: str
    at: str
    pid: int
    result: str
    says: str
    size: int
    body: bytes | None = None


class LastSent:
    """Remembers what one process sends of one kind, and writes it down now and then. One thread only; never raises.

    folder: None keeps nothing. clock: seconds since the epoch. monotonic: seconds.
    """

    def __init__(
        self,
        folder: str | None,
        kind: Kind,
        to: str,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = _path(folder, kind) if folder else None
        self._kind, self._to = kind, to
        self._clock, self._monotonic = clock, monotonic
        self._waiting: Payload | None = None
        self._not_before = 0.0
        self._warned = False

    def note(self, body: bytes, result: Result, says: str = "") -> None:
        """This was sent. It reaches the file with the next `write` that is due."""
        if self._path is not None:
            at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
            self._waiting = Payload(
                kind=self._kind,
                to=self._to,
                at=at.replace("+00:00", "Z"),
                pid=os.getpid(),
                result=result,
                says=says[:500],
                size=len(body),
                body=body if len(body) <= MOST_BYTES else None,
            )

    def write(self, *, at_once: bool = False) -> None:
        """Called often; writes at most every 5 s, unless it is to be at once."""
        payload, path = self._waiting, self._path
        if payload is None or path is None or (not at_once and self._monotonic() < self._not_before):
            return
        self._waiting, self._not_before = None, self._monotonic() + _EVERY_S
        try:
            # Not synced: no thread waits for a disk, and after a crash the last payload is the least of what is lost.
            replace(path, _written(payload), durable=False)
        except OSError as error:
            if not self._warned:
                self._warned = True
                _log.info("kvflags: what was sent cannot be kept for `kvflags telemetry show`: %s (said once)", error)


def read(folder: str, kind: Kind) -> Payload | None:
    """The last payload of the kind; None where none was sent. Raises OSError, and ValueError for what is not ours."""
    try:
        content = read_own(_path(folder, kind), MOST_BYTES + _HEAD_BYTES)
    except FileNotFoundError:
        return None
    head, _, body = content.partition(b"\n")
    try:
        told = json.loads(head)
        kept = bool(told.pop("kept"))
        return Payload(**told, body=body if kept else None)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"it holds no payload: {error}") from None


def _written(payload: Payload) -> bytes:
    head = asdict(payload) | {"kept": payload.body is not None}
    del head["body"]
    return json.dumps(head).encode() + b"\n" + (payload.body or b"")


def _path(folder: str, kind: Kind) -> Path:
    return Path(folder) / f"last-{kind}.sent"
