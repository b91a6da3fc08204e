# SPDX-License-Identifier: Apache-2.0
"""What engines send, as api.md has it, in the ledger's types. The API checks bounds; what is absent has a default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kvflags.flags import Facts, Role
from kvflags_collector.times import parsed

__all__ = ["Heartbeat", "Registration"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One front end. `presented` is a signed decision. `running`: it runs already and says what. `local`: forced."""

    registration_id: str
    deployment: str | None
    generation: str = "default"
    role: str = Role.BOTH
    features: tuple[str, ...] = ()
    kvflags: str = ""
    deaths: int = 0
    running: str | None = None
    local: Mapping[str, str] | None = None
    facts: Facts = field(default_factory=Facts)
    presented: str | None = None
    problems: tuple[str, ...] = ()
    refused: str | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Registration:
        """Out of a checked body. What was last heard is presented whole by older engines; only its token counts."""
        presented = body.get("presented")
        if isinstance(presented, Mapping):
            presented = presented.get("signed")
        plain = ("generation", "role", "kvflags", "deaths", "running", "local", "refused")
        return cls(
            registration_id=body["registration_id"],
            deployment=body.get("deployment"),
            features=tuple(body.get("features", ())),
            facts=Facts.from_json(body.get("facts", {})),
            presented=presented,
            problems=tuple(body.get("problems", ())),
            **{name: body[name] for name in plain if name in body},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One engine under a registration. `clock_us` is its own clock; `facts` holds only what it knows by now."""

    engine_id: str
    seq: int = 0
    clock_us: int | None = None
    ranks: int = 1
    facts: Mapping[str, Any] = field(default_factory=dict)
    layout: Mapping[str, Any] = field(default_factory=dict)
    exercised: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Heartbeat:
        """Out of a checked body; `clock` is a datetime or RFC 3339."""
        plain = ("seq", "ranks", "facts", "layout", "exercised", "dropped")
        clock = body.get("clock")
        return cls(
            engine_id=body["engine_id"],
            clock_us=clock and parsed(datetime.fromisoformat(clock) if isinstance(clock, str) else clock),
            problems=tuple(body.get("problems", ())),
            **{name: body[name] for name in plain if name in body},
        )

    @property
    def columns(self) -> dict[str, Any]:
        """What a heartbeat sets in `engines`, apart from facts and leases."""
        layout = {name: self.layout.get(name) for name in ("requested", "resolved", "regions", "layers", "effective")}
        return layout | {
            "seq": self.seq,
            "ranks": self.ranks,
            "ok": self.exercised.get("ok", 0),
            "errors": self.exercised.get("errors", 0),
            "dropped_spans": self.dropped.get("spans", 0),
            "dropped_events": self.dropped.get("events", 0),
            "problems": list(self.problems),
        }
