# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""`kvflags simulate`: what verdicts a fleet like yours would reach, and when. Imports the statistics when called."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from kvflags_cli.extras import needs_the_collector
from kvflags_cli.options import AsJson, example
from kvflags_cli.output import show
from kvflags_cli.progress import watched

__all__ = ["EXAMPLE", "simulate"]

EXAMPLE = example(
    "kvflags simulate --deployments 50 --effect -0.2 --heterogeneity 0.15",
    "kvflags simulate --rollouts 500 --deployments 20 --error-ratio 5 --json",
)

Rollouts = Annotated[int, typer.Option("--rollouts", metavar="N", min=1, help="How many rollouts to simulate.")]
Deployments = Annotated[int, typer.Option("--deployments", metavar="N", min=1, max=10_000, help="In each fleet.")]
Effect = Annotated[
    float, typer.Option("--effect", metavar="X", min=-0.99, max=10, help="True change of time to first token: -0.2.")
]
Heterogeneity = Annotated[
    float, typer.Option("--heterogeneity", metavar="SD", min=0, max=2, help="Its SD between deployments, in log.")
]
ErrorRatio = Annotated[
    float, typer.Option("--error-ratio", metavar="X", min=0, max=100, help="True factor on failed transfers.")
]
InterToken = Annotated[
    float, typer.Option("--inter-token", metavar="X", min=-0.99, max=10, help="True change of inter-token latency.")
]
Days = Annotated[int, typer.Option("--days", metavar="N", min=1, max=365, help="How many days it is looked at.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The same seed gives the same result.")]


def simulate(
    *,
    rollouts: Rollouts = 200,
    deployments: Deployments = 50,
    effect: Effect = 0.0,
    heterogeneity: Heterogeneity = 0.0,
    error_ratio: ErrorRatio = 1.0,
    inter_token: InterToken = 0.0,
    days: Days = 60,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Simulate rollouts on synthetic fleets, and count the verdicts they end in, and when.

    A quarter of the fleet is treated a week after the first exposure, half of it two weeks after.
    """
    with needs_the_collector():
        from kvflags_collector.verdict.simulate.plan import Plan
        from kvflags_collector.verdict.simulate.summary import run, summarise
    plan = Plan(
        deployments=deployments,
        days=days,
        effect=effect,
        heterogeneity=heterogeneity,
        error_ratio=error_ratio,
        inter_token=inter_token,
    )
    ends = list(watched(run(plan, rollouts, seed), "simulating", rollouts))
    given = {name: asdict(plan)[name] for name in _SHOWN}
    show("simulation", {"rollouts": rollouts, "seed": seed, **given, "verdicts": summarise(ends)}, as_json=as_json)


_SHOWN = ("deployments", "days", "effect", "heterogeneity", "error_ratio", "inter_token")
