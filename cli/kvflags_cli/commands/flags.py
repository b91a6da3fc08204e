# SPDX-License-Identifier: Apache-2.0
"""`kvflags flags`: create a flag, list them, show one."""

from __future__ import annotations

from typing import Annotated

import typer

from kvflags_cli.commands import connect
from kvflags_cli.options import AsJson, Author, Collector, Key, Reason, example
from kvflags_cli.output import say, show
from kvflags_cli.parse import duration
from kvflags_cli.settings import this_author

__all__ = ["app"]

app = typer.Typer(
    help="The stored rollouts: create, list and show them.",
    rich_markup_mode=None,
    epilog=example("kvflags flags list"),
)

NewKey = Annotated[str, typer.Argument(metavar="KEY", help="The new flag's name.", show_default=False)]
Feature = Annotated[str, typer.Option("--feature", metavar="NAME", help="The engine behaviour that it switches.")]
Baseline = Annotated[str, typer.Option("--baseline", metavar="TIME", help="How long a deployment is observed first.")]
Quiet = Annotated[str, typer.Option("--quiet", metavar="TIME", help="How long it must have had no new engine.")]


@app.command(epilog=example("kvflags flags create cross-layer-blocks --feature cross_layer_blocks"))
def create(
    *,
    key: NewKey,
    feature: Feature,
    baseline: Baseline = "7d",
    quiet: Quiet = "10m",
    reason: Reason = "created",
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Create a flag as a draft: it observes, and treats nobody until a percentage or a count is set."""
    body = {
        "key": key,
        "feature": feature,
        "baseline_s": round(duration(baseline, "--baseline")),
        "quiet_s": round(duration(quiet, "--quiet")),
        "author": author or this_author(),
        "reason": reason,
    }
    with connect(collector) as client:
        flag = client.post("flags", body=body)
    show("flag", flag, as_json=as_json)
    say(f"next: kvflags rollout set {key} 5% --reason TEXT")


@app.command("list", epilog=example("kvflags flags list", "kvflags flags list --json"))
def list_flags(collector: Collector = None, as_json: AsJson = False) -> None:
    """List the flags."""
    with connect(collector) as client:
        show("flags", client.get("flags")["items"], as_json=as_json)


@app.command("show", epilog=example("kvflags flags show cross-layer-blocks"))
def show_flag(key: Key, collector: Collector = None, as_json: AsJson = False) -> None:
    """Show one flag: its phase, targets and settings."""
    with connect(collector) as client:
        show("flag", client.get("flags", key), as_json=as_json)
