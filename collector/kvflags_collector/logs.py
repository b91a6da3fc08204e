# SPDX-License-Identifier: Apache-2.0
"""The one configuration of logging: everything goes to stderr, as lines for people or as one JSON document a line."""

from __future__ import annotations

import json
import logging
import sys
from typing import TextIO

from kvflags_collector.times import rfc3339

__all__ = ["FORMATS", "LEVELS", "configure"]

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
