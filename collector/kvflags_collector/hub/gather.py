# SPDX-License-Identifier: Apache-2.0
"""What goes into a fleet's bundle, read from its database."""

from __future__ import annotations

import hashlib
from typing import Any

from sqlalchemy import Connection

from kvflags.flags import Facts
from kvflags_collector.feedback import given
from kvflags_collector.hub.aggregate import Known, aggregate
from kvflags_collector.judge import layout
from kvflags_collector.judge.generations import Generation, generations
from kvflags_collector.judge.inputs import frozen, inputs
from kvflags_collector.rollout import flags
from kvflags_collector.times import rfc3339
from kvflags_collector.verdict.decide import verdict

__all__ = ["gather"]


def gather(conn: Connection, key: str, own: str, now: int) -> dict[str, Any]:
    """The bundle of a flag as of `now` (microseconds), not signed yet. NotFound (`unknown_flag`).

    own: the collector's public key, which the fleet's pseudonym is made of.
    """
    flag = flags.get(conn, key)
    found = generations(conn, flag.key)
    layout.look(conn, found, now)
    judged = inputs(conn, flag, found, frozen(conn, flag, found, now), now)
    said = [one for one in given.listing(conn, flag.key, now) if not one["withdrawn"]]
    return aggregate(
        Known(
            fleet=hashlib.sha256(own.encode()).hexdigest()[:16],
            feature=flag.feature,
            day=str(rfc3339(now))[:10],
            verdict=verdict(judged),
            effective_share=judged.effective_share,
            architectures=[_architecture(one) for one in found if one.latest],
            measured=[one.verdict for one in sorted(judged.alone, key=lambda one: one.deployment)],
            given=[one["sign"] for one in said],
            tags=[tag for one in said for tag in one["tags"]],
        )
    )


def _architecture(one: Generation) -> str | None:
    """Of engines that differ, or say nothing: None."""
    named = {Facts.from_json(engine["facts"]).architecture for engine in one.engines}
    return named.pop() if len(named) == 1 else None
