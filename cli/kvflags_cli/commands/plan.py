# SPDX-License-Identifier: Apache-2.0
"""`kvflags plan`: what a rollout would take, and the commands that carry it out. Reads only; restarts nothing."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kvflags_cli.commands import connect
from kvflags_cli.forms import Form
from kvflags_cli.options import AsJson, Collector, Key, Output, example
from kvflags_cli.output import show
from kvflags_cli.restarts import SELECTOR
from kvflags_cli.restarts import restarts as plan_restarts

__all__ = ["app"]

app = typer.Typer(
    help="Look ahead: which deployments could be treated, and what has to be replaced.",
    rich_markup_mode=None,
    epilog=example("kvflags plan fleet", "kvflags plan restarts cross-layer-blocks -o kubectl"),
)


class PlanForm(StrEnum):
    """Those of every list, and one of its own."""

    TABLE = Form.TABLE
    JSON = Form.JSON
    YAML = Form.YAML
    NAME = Form.NAME
    KUBECTL = "kubectl"


PlanOutput = Annotated[PlanForm, typer.Option("-o", "--output", help="How it is written; kubectl: a shell script.")]
Selector = Annotated[
    str, typer.Option("--selector", metavar="LABELS", help="What selects a deployment's workloads; {name} is its name.")
]
Patience = Annotated[str, typer.Option("--timeout", metavar="TIME", help="How long each command waits, for kubectl.")]


@app.command(epilog=example("kvflags plan fleet", "kvflags plan fleet -o yaml"))
def fleet(output: Output = Form.TABLE, collector: Collector = None, as_json: AsJson = False) -> None:
    """Take the census: per deployment eligible or why not, and what replacing it costs."""
    with connect(collector) as client:
        items = [item for item in client.items("deployments") if item["deployment"]]
    show("fleet_plan", items, output, as_json=as_json)


@app.command(
    epilog=example(
        "kvflags plan restarts cross-layer-blocks",
        "kvflags plan restarts cross-layer-blocks -o kubectl --selector 'app={name}' > restarts.sh",
    )
)
def restarts(
    *,
    key: Key,
    output: PlanOutput = PlanForm.TABLE,
    selector: Selector = SELECTOR,
    timeout: Patience = "30m",
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Show which deployments to replace and how: both roles together, one deployment after the other, both arms."""
    with connect(collector) as client:
        plan = plan_restarts(client.get("flags", key, "status"), selector, timeout)
    if output is PlanForm.KUBECTL:
        show("restarts_script", plan, as_json=as_json)
    else:
        show("restarts", plan, Form(output), as_json=as_json)
