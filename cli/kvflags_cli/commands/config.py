# SPDX-License-Identifier: Apache-2.0
"""`kvflags config`: what an engine, this command and a collector would go by here, and where each value comes from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kvflags_cli.forms import Form
from kvflags_cli.options import AsJson, Output, example
from kvflags_cli.origins import of_command, of_engine, of_serve
from kvflags_cli.output import show

__all__ = ["app"]

app = typer.Typer(
    help="The settings that hold here, and where they come from.",
    rich_markup_mode=None,
    epilog=example("kvflags config show --origin"),
)

Origin = Annotated[
    bool, typer.Option("--origin", help="Also where each value comes from; in JSON and YAML it is there.")
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The file that `serve` is given.", show_default=False)
]


@app.callback()
def config() -> None:
    """Keeps `show` a subcommand while it is the only one."""


@app.command("show", epilog=example("kvflags config show --origin", "kvflags config show --config serve.yaml -o json"))
def show_config(
    context: typer.Context,
    origin: Origin = False,
    config: Config = None,
    output: Output = Form.TABLE,
    as_json: AsJson = False,
) -> None:
    """Show every setting of engines, of this command and of `serve`. Secrets are masked.

    `serve` goes by its command line, then by KVFLAGS_SERVE_<OPTION>, then by --config FILE, then by the default.
    """
    root = context.find_root()
    serve = root.command.commands["serve"]  # type: ignore[attr-defined]  # the root is a group
    with serve.make_context("serve", [] if config is None else ["--config", str(config)], parent=root) as parsed:
        rows = [*of_engine(os.environ), *of_command(os.environ), *of_serve(parsed, os.environ)]
    show("config_origins" if origin else "config", [row._asdict() for row in rows], output, as_json=as_json)
