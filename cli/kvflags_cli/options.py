# SPDX-License-Identifier: Apache-2.0
"""The arguments and options that several commands share, declared once, so that they read and complete alike."""

from __future__ import annotations

from typing import Annotated

import typer

from kvflags_cli.complete import deployments, flag_keys
from kvflags_cli.forms import Form
from kvflags_cli.settings import DEFAULT_COLLECTOR, DEFAULT_DB

__all__ = [
    "AsJson",
    "Author",
    "Collector",
    "Db",
    "Deployment",
    "Flag",
    "Generation",
    "Key",
    "Name",
    "Output",
    "Reason",
    "example",
]

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, also on error.")]
Author = Annotated[
    str | None,
    typer.Option("--author", metavar="NAME", help="Who the change is recorded under.", show_default="user@host"),
]
Collector = Annotated[
    str | None,
    typer.Option(
        "--collector",
        metavar="URL",
        help="The collector to ask; else KVFLAGS_COLLECTOR_URL.",
        show_default=DEFAULT_COLLECTOR,
    ),
]
Db = Annotated[
    str,
    typer.Option("--db", metavar="URL", envvar="KVFLAGS_DB", help=f"The database, such as {DEFAULT_DB}."),
]
Deployment = Annotated[
    str,
    typer.Option(
        "--deployment", metavar="ID", help="The deployment: cluster/namespace/name.", autocompletion=deployments
    ),
]
Generation = Annotated[str, typer.Option("--generation", metavar="NAME", help="The release label its engines share.")]
Flag = Annotated[str, typer.Option("--flag", metavar="KEY", help="The flag.", autocompletion=flag_keys)]
Name = Annotated[
    str,
    typer.Argument(
        metavar="DEPLOYMENT", help="cluster/namespace/name.", show_default=False, autocompletion=deployments
    ),
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The flag.", show_default=False, autocompletion=flag_keys)]
Output = Annotated[
    Form, typer.Option("-o", "--output", help="How it is written; name: a line for each, to go on with.")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept with the change.")]


def example(*lines: str) -> str:
    """The end of a command's help. `\\b` keeps the help's formatter from joining the lines."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)
