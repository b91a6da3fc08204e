# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""`kvflags doctor`: what would keep a rollout from working, here and in the fleet, each with what to do about it."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from kvflags_cli.exit_codes import ExitCode
from kvflags_cli.options import AsJson, Collector, example
from kvflags_cli.output import show

__all__ = ["EXAMPLE", "doctor"]

EXAMPLE = example("kvflags doctor", "kvflags doctor --db sqlite:///kvflags.db")

Database = Annotated[
    str | None, typer.Option("--db", metavar="URL", help="Also look at this database.", show_default=False)
]
Config = Annotated[
    str | None,
    typer.Option(
        "--kv-transfer-config", metavar="JSON", help="Also look at what `vllm serve` is given.", show_default=False
    ),
]


def doctor(
    db: Database = None, kv_transfer_config: Config = None, collector: Collector = None, as_json: AsJson = False
) -> None:
    """Check this machine and the fleet, and say what to do about each finding. Exits 1 when there is any."""
    from kvflags_cli.checks import database, fleet, host

    checks = [*host.checks(os.environ, kv_transfer_config), *fleet.checks(collector), *database.checks(db)]
    findings = sum(check.outcome == "finding" for check in checks)
    show("doctor", {"findings": findings, "checks": [check._asdict() for check in checks]}, as_json=as_json)
    if findings:
        raise typer.Exit(ExitCode.FINDING)
