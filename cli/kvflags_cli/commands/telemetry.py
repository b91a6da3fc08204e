# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""`kvflags telemetry`: what engines on this machine send, read from what they left here."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from kvflags.environ import Reader
from kvflags.sent import Kind
from kvflags_cli.forms import Form
from kvflags_cli.options import AsJson, Output, example
from kvflags_cli.output import show

__all__ = ["app"]

app = typer.Typer(
    help="What engines on this machine send.",
    rich_markup_mode=None,
    epilog=example("kvflags telemetry show"),
)

Only = Annotated[
    Kind | None, typer.Argument(help="Only this kind; else each of them.", show_default=False, metavar="[KIND]")
]


@app.callback()
def telemetry() -> None:
    """Keeps `show` a subcommand while it is the only one."""


@app.command("show", epilog=example("kvflags telemetry show", "kvflags telemetry show traces --json"))
def show_telemetry(kind: Only = None, output: Output = Form.TABLE, as_json: AsJson = False) -> None:
    """Print the last payload of each kind that an engine on this machine sent: what, to whom, when, and the result.

    Kinds: registration, heartbeat, traces, metrics. Engines leave them in their folder for state (KVFLAGS_STATE_DIR),
    for their own user alone. Nothing is asked of a collector.
    """
    from kvflags_cli.payloads import last_sent

    folder = Reader(os.environ).state_dir("KVFLAGS_STATE_DIR")
    show("telemetry", last_sent(folder, (kind,) if kind else tuple(Kind)), output, as_json=as_json)
