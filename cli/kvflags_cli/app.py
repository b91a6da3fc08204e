# SPDX-License-Identifier: Apache-2.0
"""The Typer application: every command, registered in the order in which an operator meets them."""

from __future__ import annotations

from typing import Annotated

import typer

from kvflags import __version__
from kvflags_cli.commands import (
    canary,
    config,
    db,
    decide,
    deployments,
    doctor,
    engines,
    explain,
    feedback,
    flags,
    help_topics,
    hub,
    plan,
    report,
    rollout,
    serve,
    sharing,
    simulate,
    telemetry,
    tokens,
)
from kvflags_cli.options import example
from kvflags_cli.serve_file import ENVIRONMENT

__all__ = ["app"]

# Rich's markup is off in help texts: it would leak into the shells' completions, and the docs take the text as it is.
app = typer.Typer(
    name="kvflags",
    help="Roll out vLLM's KV-cache features to a share of your deployments, and read what came of it.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=example("kvflags report cross-layer-blocks"),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvflags {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command(epilog=serve.EXAMPLE, context_settings=ENVIRONMENT)(serve.serve)
app.add_typer(db.app, name="db")
app.add_typer(flags.app, name="flags")
app.add_typer(rollout.app, name="rollout")
app.add_typer(plan.app, name="plan")
app.add_typer(deployments.app, name="deployments")
app.add_typer(engines.app, name="engines")
app.add_typer(feedback.app, name="feedback")
sharing.add_to(feedback.app)
app.add_typer(hub.app, name="hub")
app.add_typer(canary.app, name="canary")
app.add_typer(tokens.app, name="tokens")
app.command(epilog=report.EXAMPLE)(report.report)
app.command(epilog=explain.EXAMPLE)(explain.explain)
app.command(epilog=decide.EXAMPLE)(decide.decide)
app.command(epilog=simulate.EXAMPLE)(simulate.simulate)
app.command(epilog=doctor.EXAMPLE)(doctor.doctor)
app.add_typer(config.app, name="config")
app.add_typer(telemetry.app, name="telemetry")
app.command("help", epilog=help_topics.EXAMPLE)(help_topics.help_topic)

try:
    from kvflags_cli.demo.command import demo
except ModuleNotFoundError as missing:
    # A build may leave the demo out; what the demo itself lacks is its own affair to tell.
    if missing.name not in {"kvflags_cli.demo", "kvflags_cli.demo.command"}:
        raise
else:
    app.command(epilog=example("kvflags demo"))(demo)
