# SPDX-License-Identifier: Apache-2.0
"""The top of a rollout's page: the verdict in words, why, what happens next, and what is still being taken back."""

from __future__ import annotations

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
    verdict = report["verdict"]
    stopped = flag["kill_switch"] or flag["phase"] == Phase.ABORTED
    phase = "The kill switch is set: no generation is pinned on." if flag["kill_switch"] else _PHASES[flag["phase"]]
    return {
        "state": verdict["state"],
        "reason": verdict["reason"],
        "why": verdict["why"],
        "next": verdict["next"],
        "scope": verdict["scope"],
        "doubts": [*verdict["warnings"], *(f"{name}: {says}" for name, says in verdict["invalid_strata"].items())],
        "returned": verdict["returned"],
        "phase": phase,
        "last_change": flag["last_change"] | {"at": flag["updated_at"]},
        "treated_engines": treated,
        "left_to_replace": treated if stopped else None,
        "cli": f"kvflags rollout status {flag['key']}",
    }
