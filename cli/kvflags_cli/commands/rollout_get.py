# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""`kvflags rollout get`: a rollout at a glance, once or for as long as somebody looks."""

from __future__ import annotations

from typing import Annotated

import typer

from kvflags_cli.commands import connect
from kvflags_cli.options import AsJson, Collector, Key, example
from kvflags_cli.output import show

__all__ = ["EXAMPLE", "get"]

EXAMPLE = example(
    "kvflags rollout get cross-layer-blocks --watch",
    "kvflags rollout get cross-layer-blocks --watch --json | jq -r .data.banner.state",
)

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C, and show each change.")]


def get(key: Key, watch: Watch = False, collector: Collector = None, as_json: AsJson = False) -> None:
    """Show a rollout at a glance: verdict, ramp, data health, and each guardrail with its interval.

    With --watch a terminal shows it live; elsewhere each change is a line, with --json a document on a line. A
    collector that is away for a while is waited for.
    """
    with connect(collector) as client:
        if watch:
            from kvflags_cli.watch import watch as go_on

            go_on(client, key, as_json=as_json)
        else:
            from kvflags_cli.overview import overview

            show("rollout", overview(client.page(key)), as_json=as_json)
