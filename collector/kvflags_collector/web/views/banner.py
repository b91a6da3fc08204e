# SPDX-License-Identifier: Apache-2.0
"""The top of a rollout's page: is it going well, how sure is that, what happens next, and how it is stopped."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from kvflags.flags import Phase

__all__ = ["banner"]

_PHASES = {
    Phase.DRAFT: "Not started: nobody is treated.",
    Phase.RUNNING: "Running.",
    Phase.PAUSED: "Paused: what was dealt stays, nobody new is treated.",
    Phase.ABORTED: "Aborted: every deployment returns to off as it is replaced.",
    Phase.COMPLETED: "Completed: on wherever it is eligible, and no longer compared.",
}


def banner(report: Mapping[str, Any], flag: Mapping[str, Any], treated: int) -> dict[str, Any]:
    """`report` gives the verdict, `flag` stands as it is now; `treated`: engines that were told `on` and live.

    left_to_replace: those of them that have to go because the rollout was stopped; null while it was not.
    """
    verdict, key = report["verdict"], shlex.quote(flag["key"])
    stopped = flag["kill_switch"] or flag["phase"] == Phase.ABORTED
    phase = "The kill switch is set: no generation is pinned on." if flag["kill_switch"] else _PHASES[flag["phase"]]
    doubts = [*verdict["warnings"], *(f"{name}: {says}" for name, says in verdict["invalid_strata"].items())]
    return {
        "state": verdict["state"],
        "reason": verdict["reason"],
        "why": verdict["why"],
        "sure": _sure(report),
        "next": verdict["next"],
        "scope": verdict["scope"],
        "missing": report["needed"],
        "doubts": [doubt for doubt in doubts if doubt not in verdict["why"]],
        "returned": verdict["returned"],
        "phase": phase,
        "last_change": flag["last_change"] | {"at": flag["updated_at"]},
        "treated_engines": treated,
        "left_to_replace": treated if stopped else None,
        "cli": f"kvflags rollout status {key}",
        "stop": None if stopped else f"kvflags rollout abort {key} --reason '...'",
    }


def _sure(report: Mapping[str, Any]) -> str:
    """How much the verdict can be relied on, in numbers."""
    if report["verdict"]["state"] == "invalid":
        return "Not at all: the data is in doubt. Harm that shows is still to be taken seriously."
    events = report["evidence"]["events"]
    judged = [one for one in report["outcomes"] if one["role"] != "shown"]
    if not judged or not events["treatment"]:
        return "Not at all yet: no treated deployment was measured before and after, beside controls."
    least = min(one["confidence"] for one in judged)
    decided = sum(one["standing"] != "open" for one in judged)
    return (
        f"{100 * least:.3g} % confidence in each interval, however often somebody looks;"
        f" {events['treatment']} treated and {events['control']} control deployments measured before and after;"
        f" {decided} of {len(judged)} outcomes decided."
    )
