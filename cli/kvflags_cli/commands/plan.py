# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""`kvflags plan`: what a rollout would take, and the commands that carry it out. Reads only; restarts nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from kvflags.errors import OperatorError, UsageError
from kvflags_cli.census import census
from kvflags_cli.commands import connect
from kvflags_cli.extras import needs_the_collector
from kvflags_cli.forms import Form
from kvflags_cli.options import AsJson, Collector, Key, Output, example
from kvflags_cli.output import say, show
from kvflags_cli.progress import watched
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
    """Take the census: per deployment eligible or why not, what replacing it costs, and the verdicts within reach.

    What would come of it is simulated: of a feature that is a fifth faster, no different, or fails five times as often.
    """
    with connect(collector) as client:
        items = [item for item in client.items("deployments") if item["deployment"]]
    ahead = (lambda _: ()) if output is Form.NAME else _reach
    show("fleet_plan", census(items, ahead, datetime.now(UTC).date()), output, as_json=as_json)


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
    if as_json and output is PlanForm.KUBECTL:
        raise UsageError("--json and -o kubectl ask for two forms", hint="give one of them")
    with connect(collector) as client:
        plan = plan_restarts(client.get("flags", key, "status"), selector, timeout)
    if output is PlanForm.KUBECTL:
        show("restarts_script", plan)
    else:
        show("restarts", plan, Form(output), as_json=as_json)


def _reach(deployments: int) -> Iterable[dict[str, Any]]:
    """Simulated here, with the collector's own statistics; without them the census stays what it is."""
    try:
        with needs_the_collector():
            from kvflags_collector.verdict.simulate.reach import ASSUMED, reach
    except OperatorError as missing:
        say(f"what that many can come to is not simulated: {missing.message}; {missing.hint}")
        return ()
    return watched(reach(deployments), "simulating", len(ASSUMED))
