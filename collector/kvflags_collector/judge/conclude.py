# SPDX-License-Identifier: Apache-2.0
"""What the judge comes to: the verdict on each running flag, written down when it changes, for the ramp to act upon."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, RowMapping, update

from kvflags.flags import Flag, Phase
from kvflags_collector.judge import generations, inputs, layout
from kvflags_collector.rollout import flags, judged
from kvflags_collector.store.database import Database
from kvflags_collector.store.frozen_tables import judgements
from kvflags_collector.verdict.actions import actions
from kvflags_collector.verdict.decide import verdict

__all__ = ["conclude"]

Write = Callable[[], AbstractContextManager[Connection]]
# What makes it another verdict; the words of a reason count days and change all the time.
_DECIDES = ("scope", "returned", "actions")


def conclude(db: Database, now: int, write: Write | None = None) -> int:
    """Judge every flag that runs or is paused, from what is frozen; how many verdicts changed."""
    with db.read() as conn:
        asked = [one for one in flags.by_feature(conn).values() if one.phase in {Phase.RUNNING, Phase.PAUSED}]
        found = [(flag, _judge(conn, flag, now)) for flag in asked]
    if not found:
        return 0
    with (write or db.write)() as conn:
        return sum(_store(conn, flag, row, now) for flag, row in found)


def _judge(conn: Connection, flag: Flag, now: int) -> dict[str, Any]:
    known = generations.generations(conn, flag.key)
    layout.look(conn, known, now)
    asked = inputs.inputs(conn, flag, known, inputs.frozen(conn, flag, known, now), now)
    found = verdict(asked)
    document = {
        "why": list(found.why),
        "next": found.next,
        "scope": list(found.scope),
        "returned": list(found.returned),
        "actions": [one.to_json() for one in actions(asked, found)],
    }
    return {"state": found.state.value, "reason": found.reason, "document": document}


def _store(conn: Connection, flag: Flag, row: dict[str, Any], now: int) -> bool:
    """Whether it is another verdict than the last."""
    last, c = judged.latest(conn, flag.key), judgements.c
    if last is not None and _same(last, row):
        mine = (c.flag == flag.key, c.recorded_us == last["recorded_us"])
        conn.execute(update(judgements).where(*mine).values(checked_us=max(now, last["checked_us"])))
        return False
    # Times are the key: a clock that was set back must not stand in the way.
    at_us = max(now, last["recorded_us"] + 1) if last is not None else now
    conn.execute(judgements.insert().values(flag=flag.key, recorded_us=at_us, checked_us=now, **row))
    return True


def _same(last: RowMapping, row: dict[str, Any]) -> bool:
    def decides(one: Mapping[Any, Any]) -> tuple[Any, ...]:
        return one["state"], one["reason"], *(one["document"][name] for name in _DECIDES)

    return decides(last) == decides(_as_stored(row))


def _as_stored(row: dict[str, Any]) -> dict[str, Any]:
    """Tuples come back from a JSON column as lists."""
    found: dict[str, Any] = json.loads(json.dumps(row))
    return found
