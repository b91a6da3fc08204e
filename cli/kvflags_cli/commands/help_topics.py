# SPDX-License-Identifier: Apache-2.0
"""`kvflags help TOPIC`: what no single command's help can hold, generated from the tables that the code itself uses."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kvflags.errors import ErrorCode
from kvflags.settings import SETTINGS
from kvflags_cli.exit_codes import BY_ERROR, MEANINGS
from kvflags_cli.options import AsJson, example
from kvflags_cli.output import SCHEMA, show
from kvflags_cli.settings import VARIABLES

__all__ = ["EXAMPLE", "help_topic"]

EXAMPLE = example("kvflags help exit-codes", "kvflags help environment", "kvflags help output")


class Topic(StrEnum):
    """What there is to read."""

    EXIT_CODES = "exit-codes"
    ENVIRONMENT = "environment"
    OUTPUT = "output"


Chosen = Annotated[
    Topic, typer.Argument(metavar="TOPIC", help="exit-codes, environment or output.", show_default=False)
]

_OUTPUT = f"""\
Data goes to stdout; notes, hints and errors go to stderr.

Tables fold in a terminal and are never cut. When piped, every row is one line and there are no colours.
NO_COLOR=1 turns colours off in a terminal too. What is absent is written as `-`, never as 0.

-o (--output) of lists and of what shows one thing: table, json, yaml, or name, which is a line for each
thing, as other commands take it. --json is -o json. Both write one document:
  {{"schema": "{SCHEMA}", "kind": "report", "data": ...}}
and on an error, beside the words on stderr:
  {{"schema": "{SCHEMA}", "kind": "error", "data": null, "error": {{"code", "message", "hint"}}}}
Times are RFC 3339 in UTC; units are in the names (`_ms`, `_s`). Fields may be added under the same schema."""


def help_topic(topic: Chosen, as_json: AsJson = False) -> None:
    """Explain exit codes, environment variables or output."""
    kind, data = _TOPICS[topic]()
    show(kind, data, as_json=as_json)


def _exit_codes() -> tuple[str, object]:
    return "exit_codes", [
        {
            "code": int(code),
            "meaning": meaning,
            "errors": [error.value for error in ErrorCode if BY_ERROR[error] is code],
        }
        for code, meaning in MEANINGS.items()
    ]


def _environment() -> tuple[str, object]:
    return "environment", [
        {"read_by": reader, **setting._asdict()}
        for reader, settings in (("the kvflags command", VARIABLES), ("engines", SETTINGS))
        for setting in settings
    ]


def _output() -> tuple[str, object]:
    return "topic", {"topic": Topic.OUTPUT.value, "text": _OUTPUT}


_TOPICS = {Topic.EXIT_CODES: _exit_codes, Topic.ENVIRONMENT: _environment, Topic.OUTPUT: _output}
