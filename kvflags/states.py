# SPDX-License-Identifier: Apache-2.0
"""How states are told to people, the same on a page and in a terminal: each has an icon and a word beside its tone.

So every one can be told from the others without the colour that a reader makes of the tone.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["STANDINGS", "VERDICTS", "Standing", "Verdict"]


class Verdict(NamedTuple):
    """says: what it comes to, in a sentence. tone: calm, warn, bad or good."""

    icon: str
    word: str
    says: str
    tone: str


class Standing(NamedTuple):
    """Of a figure against its limit, or of what could make data lie. tone: calm, warn, bad or good."""

    icon: str
    word: str
    tone: str


VERDICTS = {
    "waiting": Verdict("…", "Waiting", "There is not enough evidence to judge this rollout yet.", "calm"),
    "on_track": Verdict("→", "On track", "Nothing bad was seen, and nothing is decided.", "calm"),
    "hold": Verdict("!", "Hold", "A limit is touched: do not raise the share.", "warn"),
    "neutral": Verdict("=", "Neutral", "The arms do not differ enough to matter.", "calm"),
    "regression": Verdict("✗", "Regression", "Treated deployments are worse off: roll back.", "bad"),
    "invalid": Verdict("✗", "Invalid", "The arms cannot be compared until something is put right.", "bad"),
    "ready": Verdict("✓", "Ready", "The evidence is in: make it the default for the scope below.", "good"),
}

STANDINGS = {
    "broken": Standing("✗", "limit broken", "bad"),
    "open": Standing("?", "undecided", "calm"),
    "met": Standing("✓", "within its limit", "good"),
    "bad": Standing("✗", "wrong", "bad"),
    "warn": Standing("!", "look into it", "warn"),
    "good": Standing("✓", "fine", "good"),
    "unknown": Standing("…", "not known yet", "calm"),
}
