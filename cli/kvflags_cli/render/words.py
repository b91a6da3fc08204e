# SPDX-License-Identifier: Apache-2.0
"""States as an icon and a word, coloured; each can be told from the others without the colour."""

from __future__ import annotations

from rich.text import Text

from kvflags.states import STANDINGS, VERDICTS, Standing

__all__ = ["outcome", "phase", "standing", "switch", "verdict"]

# Of tones.
_COLOURS = {"calm": "cyan", "warn": "yellow", "bad": "red", "good": "green"}
_PHASES = {"draft": "cyan", "running": "green", "paused": "yellow", "aborted": "red", "completed": "green"}
_OUTCOMES = {"ok": ("✓", "green"), "finding": ("✗", "red"), "skipped": ("-", "dim")}


def verdict(state: str) -> Text:
    known = VERDICTS.get(state)
    icon, tone = (known.icon, known.tone) if known else ("?", "warn")
    return Text(f"{icon} {state.upper()}", style=f"bold {_COLOURS[tone]}")


def phase(name: str) -> Text:
    return Text(name, style=_PHASES.get(name, ""))


def switch(is_set: bool) -> Text:
    return Text("SET", style="bold red") if is_set else Text("not set")


def standing(name: str) -> Text:
    icon, word, tone = STANDINGS.get(name, Standing("?", name, "warn"))
    return Text(f"{icon} {word}", style=_COLOURS[tone])


def outcome(name: str) -> Text:
    icon, colour = _OUTCOMES[name]
    return Text(f"{icon} {name}", style=colour)
