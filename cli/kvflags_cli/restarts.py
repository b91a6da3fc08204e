# SPDX-License-Identifier: Apache-2.0
"""Which deployments have to be replaced, and the commands that do it. Pure: a rollout's status in, a plan out.

A command gives prefill and decode of a deployment a new generation in one step, so that neither runs with the other's
old layout, and the next deployment waits for it. Both arms are replaced: what only treated deployments went through
would be measured as if it were the treatment.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

__all__ = ["SELECTOR", "restarts"]

# What selects the workloads of a deployment: the label that Helm and most operators set to a release's name.
SELECTOR = "app.kubernetes.io/instance={name}"

Json = dict[str, Any]


def restarts(status: Json, selector: str, timeout: str) -> list[Json]:
    """`[{deployment, generations, engines, why, runs, commands}]`, condemned first, then arms taking turns."""
    label = f"kv{status['flag']['revision']}"
    aborted = status["flag"]["phase"] == "aborted"
    due = [(item, why) for item in status["deployments"] if (why := _why(item, aborted=aborted))]
    turns: dict[str | None, int] = {}
    ranked = []
    for item, why in due:
        turn = turns[item["arm"]] = turns.get(item["arm"], 0) + 1
        ranked.append((why != "condemned", turn, item["deployment"], item, why))
    return [_plan(item, why, label, selector, timeout) for *_, item, why in sorted(ranked, key=lambda one: one[:3])]


def _why(item: Json, *, aborted: bool) -> str:
    """Why this deployment is to be replaced; empty when nothing is to be done."""
    living = [one for one in item["generations"] if one["live_engines"]]
    if any(one["to_replace"] for one in living):
        return "condemned"
    if aborted and item["treated_engines"]:
        return "still treated"
    if item["pending"] and living:
        return f"its next generation runs {item['pending']}"
    if living and item["arm"] and all(one["arm"] != item["arm"] for one in living):
        return f"enters the {item['arm']} arm"
    return ""


def _plan(item: Json, why: str, label: str, selector: str, timeout: str) -> Json:
    living = [one for one in item["generations"] if one["live_engines"]]
    following = f"{living[-1]['generation'].partition('.kv')[0]}.{label}" if living else label
    return {
        "deployment": item["deployment"],
        "generations": [one["generation"] for one in living],
        "engines": sum(one["live_engines"] for one in living),
        "arm": item["arm"],
        "why": why,
        "next_generation": following,
        "commands": list(_commands(item["deployment"], following, selector, timeout)),
    }


def _commands(deployment: str, generation: str, selector: str, timeout: str) -> Iterator[str]:
    """kubectl for cluster/namespace/name; a name with fewer parts leaves context or namespace to kubectl's own."""
    *above, name = deployment.split("/")
    namespace = above.pop() if above else ""
    context = "/".join(above)
    base = ["kubectl", *(["--context", context] if context else []), *(["-n", namespace] if namespace else [])]
    chosen = ["-l", selector.replace("{name}", name)]
    yield shlex.join([*base, "set", "env", "deployment,statefulset", *chosen, f"KVFLAGS_GENERATION={generation}"])
    yield shlex.join([*base, "rollout", "status", "deployment,statefulset", *chosen, f"--timeout={timeout}"])
