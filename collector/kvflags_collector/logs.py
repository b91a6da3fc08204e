# SPDX-License-Identifier: Apache-2.0
"""The one configuration of logging: everything goes to stderr, as lines for people or as one JSON document a line."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import TextIO

from kvflags_collector.times import rfc3339

__all__ = ["FORMATS", "LEVELS", "Seldom", "configure"]

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")

# What every record has; whatever else stands on one was given as `extra`, and becomes a field of its own.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": rfc3339(round(record.created * 1e6)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Newlines are escaped, so nothing that was sent to us can make up a line.
        return json.dumps(line, default=str)


class _Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        fields = [f"{name}={value}" for name, value in vars(record).items() if name not in _USUAL]
        return " ".join([super().format(record), *fields])


def configure(form: str, level: str, stream: TextIO | None = None) -> None:
    """For this process, once, before anything is logged. `form`: one of FORMATS; `level`: one of LEVELS."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    # Their lines about each connection and migration say nothing to an operator.
    for chatty in ("alembic", "asyncio", "grpc"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


class Seldom:
    """For what may fail hundreds of times a second for hours, a full disk above all: said once in `every_s` seconds.

    Used by one thread. `clock` gives seconds.
    """

    def __init__(
        self, log: logging.Logger, *, every_s: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log, self._every_s, self._clock = log, every_s, clock
        # Message, as it is before its arguments are filled in: (when it may be said again, how often it was not said).
        self._said: dict[str, tuple[float, int]] = {}

    def say(self, level: int, message: str, *args: object) -> None:
        """One line; with how often it was left out since it was said last."""
        now = self._clock()
        again, unsaid = self._said.get(message, (now, 0))
        if now < again:
            self._said[message] = (again, unsaid + 1)
            return
        self._said[message] = (now + self._every_s, 0)
        extra = {"unsaid": unsaid} if unsaid else None
        self._log.log(level, message, *args, extra=extra)
