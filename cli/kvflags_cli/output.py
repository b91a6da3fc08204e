# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""What goes to stdout and what to stderr: data (a view or one JSON document), and talk (notes and errors)."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kvflags.errors import KvflagsError
from kvflags_cli.forms import Form, chosen, names, written

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["SCHEMA", "console", "fail", "page", "put", "say", "show", "stream"]

# The version of the envelope. Fields are added under the same number; anything else makes it kvflags/2.
SCHEMA = "kvflags/1"

# Wider than any table of ours: what is piped is never folded, so that ids stay whole for grep and awk.
_PIPE_WIDTH = 10_000


def show(kind: str, data: Any, form: Form = Form.TABLE, *, as_json: bool = False) -> None:  # noqa: ANN401 - any JSON
    """The result of a command: the document, its names, or the view that `render` has for its kind."""
    match chosen(form, as_json=as_json):
        case Form.TABLE:
            _view(kind, data)
        case Form.NAME:
            sys.stdout.write("".join(f"{name}\n" for name in names(kind, data)))
        case form:
            sys.stdout.write(written({"schema": SCHEMA, "kind": kind, "data": data}, form))


def _view(kind: str, data: Any) -> None:  # noqa: ANN401 - any JSON document
    # Imported here, so that --help and --json do without Rich.
    from kvflags_cli.render import VIEWS

    parts = VIEWS[kind](data)
    if sys.stdout.isatty():
        _print(parts, width=None)
    else:
        sys.stdout.write(_piped(parts))


def put(line: str) -> None:
    """A line of data, at once: whoever reads a pipe as it fills waits for no buffer."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def page(text: str) -> None:
    """A text that is the whole of what is asked for, as it is."""
    sys.stdout.write(text)


def stream(kind: str, data: Any) -> None:  # noqa: ANN401 - any JSON document
    """One of several documents, each on its own line."""
    put(json.dumps({"schema": SCHEMA, "kind": kind, "data": data}, ensure_ascii=False, allow_nan=False))


def console(*, width: int | None = None, file: io.StringIO | None = None) -> Console:
    """Where views are printed: stdout, or a file."""
    from rich.console import Console

    # Markup and highlighting off: what is printed comes from the collector, and brackets in a reason are just brackets.
    return Console(file=file, width=width, markup=False, highlight=False, emoji=False)


def say(text: str) -> None:
    """A note to the person at the terminal."""
    sys.stderr.write(f"{text}\n")


def fail(error: KvflagsError, form: Form) -> None:
    """An error: in words on stderr, and as the one document on stdout where one was asked for."""
    lines = [f"error: {error.message}", *(f"  {line}" for line in _differences(error))]
    say("\n".join(lines) + (f"\n\nhint: {error.hint}" if error.hint else ""))
    if form in {Form.JSON, Form.YAML}:
        told: dict[str, Any] = {"code": error.code.value, "message": error.message, "hint": error.hint}
        if error.detail is not None:
            told["detail"] = error.detail
        sys.stdout.write(written({"schema": SCHEMA, "kind": "error", "data": None, "error": told}, form))


def _differences(error: KvflagsError) -> list[str]:
    """What changed since, and by whom, where two changes met."""
    detail = error.detail or {}
    since, diff = detail.get("since", ()), detail.get("diff", ())
    told = [f"{one['revision']}: {one['action']} by {one['author']}: {one['reason']}" for one in since]
    return told + [f"{one['field']}: {json.dumps(one['was'])} -> {json.dumps(one['now'])}" for one in diff]


def _print(parts: Iterable[RenderableType], *, width: int | None, file: io.StringIO | None = None) -> None:
    to = console(width=width, file=file)
    for part in parts:
        to.print(part)


def _piped(parts: Iterable[RenderableType]) -> str:
    text = io.StringIO()
    _print(parts, width=_PIPE_WIDTH, file=text)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
