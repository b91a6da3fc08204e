# SPDX-License-Identifier: Apache-2.0
"""States as an icon and a word, coloured; each can be told from the others without the colour."""

from __future__ import annotations

from rich.text import Text

__all__ = ["outcome", "phase", "switch", "verdict"]

_VERDICTS = {
    "waiting": ("…", "cyan"),
    "on_track": ("→", "cyan"),
    "hold": ("!", "yellow"),
    "neutral": ("=", "cyan"),
    "regression": ("✗", "red"),
    "invalid": ("✗", "red"),
    "ready": ("✓", "green"),
}
_PHASES = {"draft": "cyan", "running": "green", "paused": "yellow", "aborted": "red", "completed": "green"}
_OUTCOMES = {"ok": ("✓", "green"), "finding": ("✗", "red"), "skipped": ("-", "dim")}


def verdict(state: str) -> Text:
    icon, colour = _VERDICTS.get(state, ("?", "yellow"))
    return Text(f"{icon} {state.upper()}", style=f"bold {colour}")


def phase(name: str) -> Text:
    return Text(name, style=_PHASES.get(name, ""))


def switch(is_set: bool) -> Text:
    return Text("SET", style="bold red") if is_set else Text("not set")


def outcome(name: str) -> Text:
    icon, colour = _OUTCOMES[name]
    return Text(f"{icon} {name}", style=colour)
