# SPDX-License-Identifier: Apache-2.0
"""`kvflags deployments`: what the collector has heard of."""

from __future__ import annotations

import typer

from kvflags_cli.commands import connect
from kvflags_cli.options import AsJson, Collector, example
from kvflags_cli.output import show

__all__ = ["app"]

app = typer.Typer(
    help="The deployments that the collector knows.",
    rich_markup_mode=None,
    epilog=example("kvflags deployments list"),
)


@app.callback()
def deployments() -> None:
    """Keeps `list` a subcommand while it is the only one."""


@app.command("list", epilog=example("kvflags deployments list", "kvflags deployments list --json"))
def list_deployments(collector: Collector = None, as_json: AsJson = False) -> None:
    """List the deployments."""
    with connect(collector) as client:
        show("deployments", client.get("deployments")["items"], as_json=as_json)
