# SPDX-License-Identifier: Apache-2.0
"""`kvflags report`: the verdict, with everything it rests on."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from kvflags.errors import UsageError
from kvflags_cli.commands import connect
from kvflags_cli.exit_codes import ExitCode
from kvflags_cli.options import AsJson, Collector, Key, example
from kvflags_cli.output import page, show

__all__ = ["EXAMPLE", "Format", "report"]

EXAMPLE = example(
    "kvflags report cross-layer-blocks",
    "kvflags report cross-layer-blocks --json | jq .data.verdict",
    "kvflags report cross-layer-blocks --format markdown | gh pr comment 123 -F -",
    "kvflags report cross-layer-blocks --as-of 2027-02-14",
    "kvflags report cross-layer-blocks --check && deploy",
)


class Format(StrEnum):
    """What the report is written as."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"


As = Annotated[
    Format, typer.Option("--format", help="table: for a terminal; markdown: for a pull request; html: one file.")
]
Check = Annotated[
    bool, typer.Option("--check", help="Exit 0 only if the verdict is ready, 1 on a regression, 3 on anything else.")
]

AsOf = Annotated[
    str | None,
    typer.Option("--as-of", metavar="TIME", help="The report of a past time, such as 2027-02-14T12:00:00Z."),
]

_CODES = {"ready": ExitCode.OK, "regression": ExitCode.FINDING}


def report(
    *,
    key: Key,
    collector: Collector = None,
    as_of: AsOf = None,
    as_: As = Format.TABLE,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Print the verdict on a flag with its reasons, and everything that it rests on."""
    if as_json and as_ not in {Format.TABLE, Format.JSON}:
        raise UsageError(f"--json and --format {as_} name two formats", hint="leave one of them out")
    with connect(collector) as client:
        document = client.get("flags", key, "report", **({"as_of": as_of} if as_of else {}))
    if as_json or as_ is Format.JSON:
        show("report", document, as_json=True)
    elif as_ is Format.TABLE:
        show("report", document)
    else:
        page(_written(document, as_))
    if check:
        raise typer.Exit(_CODES.get(document["verdict"]["state"], ExitCode.UNDECIDED))


def _written(document: dict[str, Any], as_: Format) -> str:
    from kvflags_cli.render.written.html import html  # noqa: PLC0415 - with --help they are not needed
    from kvflags_cli.render.written.markdown import markdown  # noqa: PLC0415 - as above

    return markdown(document) if as_ is Format.MARKDOWN else html(document)
