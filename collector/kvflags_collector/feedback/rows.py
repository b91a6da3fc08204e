# SPDX-License-Identifier: Apache-2.0
"""The rows of a report: each arm, and each generation of each deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvflags.features import FEATURES
from kvflags.flags import Arm, Comparison, Flag
from kvflags_collector.feedback import document
from kvflags_collector.feedback.totals import figures
from kvflags_collector.judge import layout
from kvflags_collector.judge.generations import Generation
from kvflags_collector.store.measures import merge
from kvflags_collector.verdict.evidence import Inputs
from kvflags_collector.verdict.placebo import DeploymentVerdict

__all__ = ["arms", "deployments"]


def arms(found: Sequence[Generation]) -> list[document.Arm]:
    """Both arms of the comparison, and what is in neither where there was any of it."""
    both = [_arm(arm.value, [one for one in found if one.included and _arm_of(one) == arm]) for arm in Arm]
    rest = _arm(None, [one for one in found if not one.included])
    return both if rest["transfers"] is None else [*both, rest]


def deployments(found: Sequence[Generation], flag: Flag, judged: Inputs) -> list[document.Deployment]:
    """In the order given."""
    alone = {one.deployment: one.verdict for one in judged.alone}
    return [_row(one, flag, alone) for one in found]


def _arm(arm: str | None, members: Sequence[Generation]) -> document.Arm:
    whole = figures(merge([one.totals for one in members]))
    return {"arm": arm, "deployments": len({one.deployment for one in members}), **whole}


def _row(one: Generation, flag: Flag, alone: Mapping[str, DeploymentVerdict]) -> document.Deployment:
    return {
        "deployment": one.deployment or None,
        "generation": one.generation,
        "epoch": one.pin["epoch"] if one.pin else None,
        "latest": one.latest,
        "state": one.pin["state"] if one.pin else None,
        "arm": _arm_of(one),
        "comparison": (Comparison.INCLUDED if one.included else Comparison.EXCLUDED).value,
        "excluded_because": one.excluded_because,
        "variant": one.pin["variant"] if one.pin else None,
        **figures(one.totals),
        "layout": one.layout,
        "exercised": layout.exercised(one),
        "refusals": [
            {"code": each["code"], "says": each["says"]} for each in layout.refused(one, FEATURES[flag.feature])
        ],
        "problems": sorted(layout.problems(one)),
        "dropped": layout.dropped(one),
        "verdict": _alone(one, alone),
    }


def _alone(one: Generation, verdicts: Mapping[str, DeploymentVerdict]) -> str | None:
    """What its own change says, held against what controls do by themselves; null where it is not treated."""
    treated = one.latest and one.included and _arm_of(one) == Arm.TREATMENT
    return verdicts.get(one.deployment, DeploymentVerdict.INSUFFICIENT).value if treated else None


def _arm_of(one: Generation) -> str | None:
    return one.pin["arm"] if one.pin else None
