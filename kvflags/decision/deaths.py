# SPDX-License-Identifier: Apache-2.0
"""Unclean stops, counted on disk: what safe mode goes by.

A process leaves a mark when it starts and takes it away when it stops cleanly. While it lives it holds a lock on the
mark, which the kernel drops however it dies; so a mark that nobody holds is a death, across containers and reboots.
The front end leaves one (a crash while the model loads) and each rank-0 worker one (a crash later): a front end may
outlive its engine core and then stop in good order, which must not hide the crash.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import math
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from kvflags.decision.state import State, state_problem

__all__ = ["Mark", "clean_at_exit", "count"]

# Older marks are swept: an engine that died last month says nothing about today's. Nor does the hundredth death say
# more than the ninety-ninth, and an engine that crashes every ten seconds must not fill the disk.
_MAX_AGE_S = 7 * 86_400.0
_MAX_MARKS = 100


class Mark:
    """The mark of one process. Never raises: where it cannot be left, nothing is counted."""

    def __init__(self, state: State, role: str, registration_id: str, part: str = "front") -> None:
        name = hashlib.sha256(f"{registration_id}\0{part}".encode()).hexdigest()[:16]
        self._group = f"{role}.mark"
        self._state = state
        self._path = state.path(f"{self._group}.{_short(registration_id)}.{name}")
        self._handle = -1

    def leave(self, problems: list[str]) -> None:
        """Called once, at the start. What goes wrong is added to `problems`."""
        try:
            self._state.prepare()
            self._handle = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._drop()
            problems.append(state_problem("an unclean stop could not be counted", error))
            return
        # A forked child would hold the lock beyond our death. Closing a copy does not release the original.
        os.register_at_fork(after_in_child=self._drop)

    def clean(self, *, ran: bool) -> None:
        """Take it away: a clean stop. `ran`: the engine was up, so it also ends the row of deaths before it."""
        if self._handle < 0:
            return
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
            if ran:
                for path in _dead(self._state, self._group):
                    path.unlink(missing_ok=True)
        self._drop()

    def _drop(self) -> None:
        if self._handle >= 0:
            with suppress(OSError):
                os.close(self._handle)
            self._handle = -1


def count(state: State, role: str, problems: list[str]) -> int:
    """How many predecessors in this role died in a row. Called before `leave`; adds to `problems` like it."""
    try:
        by_age = sorted((_age(path), path) for path in _dead(state, f"{role}.mark"))
        for place, (age, path) in enumerate(by_age):
            if place >= _MAX_MARKS or age > _MAX_AGE_S:
                path.unlink(missing_ok=True)
    except FileNotFoundError:
        return 0
    except OSError as error:
        problems.append(state_problem("unclean stops cannot be counted", error))
        return 0
    # One start leaves several marks when front end and workers die together.
    return len({_registration(path) for age, path in by_age[:_MAX_MARKS] if age <= _MAX_AGE_S})


def clean_at_exit(mark: Mark) -> None:
    """Take the front end's mark away when the interpreter ends in good order; an exception that ends it is a death."""
    atexit.register(_take_away, mark)


def _take_away(mark: Mark) -> None:
    # Set by the interpreter for the exception that ends it (a failed start of the engine core). Ctrl-C is no death.
    ended_by = getattr(sys, "last_value", None)
    if ended_by is None or isinstance(ended_by, KeyboardInterrupt):
        mark.clean(ran=False)


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _dead(state: State, group: str) -> list[Path]:
    prefix = f"{state.key}.{group}."
    return [path for path in state.folder.iterdir() if path.name.startswith(prefix) and _unheld(path)]


def _unheld(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def _short(registration_id: str) -> str:
    return hashlib.sha256(registration_id.encode()).hexdigest()[:16]


def _registration(path: Path) -> str:
    return path.name.rsplit(".", 2)[1]
