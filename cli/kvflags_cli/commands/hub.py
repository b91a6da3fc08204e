# SPDX-License-Identifier: Apache-2.0
"""`kvflags hub`: what a hub knows over organisations, and whose bundles it counts."""

from __future__ import annotations

from typing import Annotated

import typer

from kvflags_cli.commands import connect
from kvflags_cli.forms import Form
from kvflags_cli.options import AsJson, Author, Collector, Output, example
from kvflags_cli.output import show
from kvflags_cli.settings import this_author

__all__ = ["app"]

app = typer.Typer(
    help="Read what other organisations measured, and say whose bundles count. For a collector served with --hub.",
    rich_markup_mode=None,
    epilog=example("kvflags hub report cross-layer-blocks"),
)

Feature = Annotated[
    str, typer.Argument(metavar="FEATURE", help="Such as cross_layer_blocks; dashes do too.", show_default=False)
]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", metavar="TIME", help="As it was then, RFC 3339.", show_default="now"),
]
Which = Annotated[
    str, typer.Argument(metavar="ID", help="As `kvflags hub organisations` shows it.", show_default=False)
]
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="What you call it; it is in no report.")]


@app.command(epilog=example("kvflags hub report cross-layer-blocks --json"))
def report(
    feature: Feature,
    as_of: AsOf = None,
    output: Output = Form.TABLE,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Print the verdict on a feature over organisations, with the largest one's share and the effect without it."""
    query = {} if as_of is None else {"as_of": as_of}
    with connect(collector) as client:
        show("hub_report", client.get("hub", "reports", feature.replace("-", "_"), **query), output, as_json=as_json)


@app.command(epilog=example("kvflags hub organisations"))
def organisations(output: Output = Form.TABLE, collector: Collector = None, as_json: AsJson = False) -> None:
    """List who sent something, and whether it is counted."""
    with connect(collector) as client:
        show("organisations", client.get("hub", "organisations")["items"], output, as_json=as_json)


@app.command(epilog=example("kvflags hub admit 5f2c91d0a3b4 --name 'Example Ltd'"))
def admit(
    which: Which, name: Name = "", author: Author = None, collector: Collector = None, as_json: AsJson = False
) -> None:
    """Count what an organisation sent, and will send: you know that it is one, and not another's second."""
    body = {"author": author or this_author(), "name": name}
    with connect(collector) as client:
        show("organisations", [client.post("hub", "organisations", which, "admit", body=body)], as_json=as_json)


@app.command(epilog=example("kvflags hub dismiss 5f2c91d0a3b4"))
def dismiss(which: Which, author: Author = None, collector: Collector = None, as_json: AsJson = False) -> None:
    """Count nothing of an organisation any more."""
    body = {"author": author or this_author()}
    with connect(collector) as client:
        show("organisations", [client.post("hub", "organisations", which, "dismiss", body=body)], as_json=as_json)
