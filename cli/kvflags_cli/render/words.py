# SPDX-License-Identifier: Apache-2.0
"""States as an icon and a word, coloured; each can be told from the others without the colour."""

from __future__ import annotations

from rich.text import Text

__all__ = ["outcome", "phase", "standing", "switch", "verdict"]

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
# Of a figure against its limit, and of what could make the data lie.
_STANDINGS = {
    "broken": ("✗", "limit broken", "red"),
    "open": ("?", "undecided", "cyan"),
    "met": ("✓", "within its limit", "green"),
    "bad": ("✗", "wrong", "red"),
    "warn": ("!", "look into it", "yellow"),
    "good": ("✓", "fine", "green"),
    "unknown": ("…", "not known yet", "cyan"),
}
_OUTCOMES = {"ok": ("✓", "green"), "finding": ("✗", "red"), "skipped": ("-", "dim")}


def verdict(state: str) -> Text:
    icon, colour = _VERDICTS.get(state, ("?", "yellow"))
    return Text(f"{icon} {state.upper()}", style=f"bold {colour}")


def phase(name: str) -> Text:
    return Text(name, style=_PHASES.get(name, ""))


def switch(is_set: bool) -> Text:
    return Text("SET", style="bold red") if is_set else Text("not set")


def standing(name: str) -> Text:
    icon, word, colour = _STANDINGS.get(name, ("?", name, "yellow"))
    return Text(f"{icon} {word}", style=colour)


def outcome(name: str) -> Text:
    icon, colour = _OUTCOMES[name]
    return Text(f"{icon} {name}", style=colour)
