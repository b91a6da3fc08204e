# SPDX-License-Identifier: Apache-2.0
"""The decision last heard, on disk: what an engine follows when it restarts while the collector is away.

Kept per (collector, deployment, generation): a decision of another generation is about other peers and never used.
Nothing here raises: a file that cannot be read or written is a problem in words.
"""

from __future__ import annotations

from kvflags.decision.answer import decision_from
from kvflags.decision.state import State, state_problem
from kvflags.flags import Decision

__all__ = ["read", "remember"]

_FILE = "decision.json"


def read(state: State, problems: list[str]) -> Decision | None:
    """The decision, None where there is none. What goes wrong is added to `problems`."""
    try:
        document = state.read(_FILE)
        return None if document is None else decision_from(document)
    except (OSError, ValueError) as error:
        problems.append(state_problem("the decision last heard cannot be read", error))
        return None


def remember(state: State, decision: Decision | None, problems: list[str]) -> None:
    """Keep the decision as it was heard; None (no flag any more) forgets it. Adds to `problems` like `read`."""
    try:
        if decision is None:
            state.remove(_FILE)
        elif _differs(state, decision):
            state.write(_FILE, decision.to_json())
    except OSError as error:
        problems.append(state_problem("the decision cannot be kept for the next start", error))


def _differs(state: State, decision: Decision) -> bool:
    try:
        return bool(state.read(_FILE) != decision.to_json())
    except ValueError:
        # What cannot be read is replaced.
        return True
