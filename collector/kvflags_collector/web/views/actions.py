# SPDX-License-Identifier: Apache-2.0
"""What can be done to a rollout from its page: each with what it does, when it can be done, and its command line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvflags.flags import Phase

__all__ = ["ACTIONS", "Action", "actions", "refused", "shown"]


@dataclass(frozen=True, slots=True)
class Action:
    """says: what happens, before it is confirmed. phases: in which it can be done. typed: the flag's key is asked for,
    since it reaches everybody. promotes: doubt about the data, and harm, forbid it. reason: what stands in the
    log where none was given, since nobody writes an essay before stopping a fire; empty where one has to be."""

    name: str
    label: str
    says: str
    command: str
    phases: frozenset[str]
    tone: str = "calm"
    promotes: bool = False
    typed: bool = False
    reason: str = ""


_ANY = frozenset(Phase)

ACTIONS = {
    one.name: one
    for one in (
        Action(
            "abort",
            "Abort",
            "Ends the rollout: every treated deployment returns to off as it is replaced, and nobody new is treated.",
            "abort {key}",
            frozenset({Phase.DRAFT, Phase.RUNNING, Phase.PAUSED, Phase.COMPLETED}),
            tone="bad",
            reason="stopped from the page",
        ),
        Action(
            "kill",
            "Kill switch",
            "Pins no generation on from now, whatever else is set, and condemns those that are on.",
            "kill {key}",
            _ANY,
            tone="bad",
            reason="stopped from the page",
        ),
        Action("unkill", "Clear the kill switch", "What was condemned stays condemned.", "kill {key} --clear", _ANY),
        Action(
            "pause",
            "Pause",
            "Treats nobody new. What was dealt stays as it is.",
            "pause {key}",
            frozenset({Phase.RUNNING}),
        ),
        Action(
            "resume",
            "Resume",
            "Goes on where it was paused.",
            "resume {key}",
            frozenset({Phase.PAUSED}),
            promotes=True,
        ),
        Action(
            "start",
            "Start again",
            "Takes the rollout up again. What was condemned stays condemned until it is replaced.",
            "start {key}",
            frozenset({Phase.ABORTED}),
            promotes=True,
        ),
        Action(
            "promote",
            "Approve the next step",
            "Enters the next step of the ramp now, whatever it still waits for.",
            "promote {key} --revision {revision}",
            frozenset({Phase.RUNNING}),
            promotes=True,
        ),
        Action(
            "default",
            "Make it the default",
            "Treats everybody eligible but a last holdback of 5 % for 14 days.",
            "promote {key} --default --revision {revision}",
            frozenset({Phase.RUNNING}),
            promotes=True,
            typed=True,
        ),
    )
}

# Verdicts under which nothing grows: a limit is touched, harm is shown, or nothing can be concluded.
_BLOCKING = {"hold", "regression", "invalid"}


def actions(flag: Mapping[str, Any], ramp: Mapping[str, Any] | None, verdict: str) -> list[dict[str, Any]]:
    """Those that make sense now; `refused` says why one cannot be done yet, null where it can."""
    return [shown(one, flag, refused(one, verdict)) for one in ACTIONS.values() if _sensible(one, flag, ramp)]


def shown(action: Action, flag: Mapping[str, Any], because: str | None) -> dict[str, Any]:
    """As a page offers it at the flag's revision; `refused`: why it cannot be done, null where it can."""
    return {
        "name": action.name,
        "label": action.label,
        "says": action.says,
        "tone": action.tone,
        "typed": action.typed,
        "needs_reason": not action.reason,
        "refused": because,
        "revision": flag["revision"],
        "cli": _line(action, flag),
    }


def refused(action: Action, verdict: str) -> str | None:
    """Why the verdict forbids it; None where it does not. Stopping is never refused."""
    return f"the verdict is {verdict.replace('_', ' ')}" if action.promotes and verdict in _BLOCKING else None


def _sensible(action: Action, flag: Mapping[str, Any], ramp: Mapping[str, Any] | None) -> bool:
    fits = {
        "kill": not flag["kill_switch"],
        "unkill": bool(flag["kill_switch"]),
        "promote": bool(ramp) and ramp is not None and ramp["at"] + 1 < len(ramp["steps"]),
        "default": flag.get("default_since_us") is None,
    }
    return flag["phase"] in action.phases and fits.get(action.name, True)


def _line(action: Action, flag: Mapping[str, Any]) -> str:
    command = action.command.format(key=shlex.quote(flag["key"]), revision=flag["revision"])
    return f"kvflags rollout {command} --reason '...'"
