# SPDX-License-Identifier: Apache-2.0
"""`kvflags engines`: every engine that sends heartbeats, and the layout it really has."""

from __future__ import annotations

from typing import Annotated

import typer

from kvflags_cli.commands import connect
from kvflags_cli.forms import Form
from kvflags_cli.options import AsJson, Collector, Output, example
from kvflags_cli.output import show

__all__ = ["app"]

app = typer.Typer(
    help="The engines that send heartbeats.",
    rich_markup_mode=None,
    epilog=example("kvflags engines list"),
)


@app.callback()
def engines() -> None:
    """Keeps `list` a subcommand while it is the only one."""


Every = Annotated[bool, typer.Option("--all", help="Also those that have ended.")]


@app.command("list", epilog=example("kvflags engines list", "kvflags engines list --all -o json"))
def list_engines(
    every: Every = False, output: Output = Form.TABLE, collector: Collector = None, as_json: AsJson = False
) -> None:
    """List the live engines with the layout they asked for, were given, and really have."""
    with connect(collector) as client:
        show("engines", client.items("engines", live=str(not every).lower()), output, as_json=as_json)
