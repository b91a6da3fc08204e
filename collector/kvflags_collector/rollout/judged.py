# SPDX-License-Identifier: Apache-2.0
"""The verdict's guardrails: what the judge last wrote down, as findings for the ramp. Reads only."""

from __future__ import annotations

from sqlalchemy import Connection, RowMapping, select

from kvflags.flags import Flag
from kvflags_collector.rollout.guard import Act, Finding
from kvflags_collector.store.frozen_tables import judgements
from kvflags_collector.times import SECOND, lasting, rfc3339

__all__ = ["findings", "lacking", "latest", "scope"]

# The judge looks every minute. What is older says nothing of now: it neither stops a rollout nor lets one go on.
_FRESH_US = 3600 * SECOND
_BLOCKING = ("hold", "invalid", "regression")


def latest(conn: Connection, flag: str) -> RowMapping | None:
    """The verdict in force, a row of `judgements`; None before the first."""
    c = judgements.c
    query = select(judgements).where(c.flag == flag).order_by(c.recorded_us.desc()).limit(1)
    return conn.execute(query).mappings().first()


def findings(conn: Connection, flag: Flag, now: int) -> list[Finding]:
    """What the verdict asks the rollout to do, while it is fresh."""
    found = latest(conn, flag.key)
    if found is None or now - found["checked_us"] > _FRESH_US:
        return []
    return [
        Finding(
            metric=one["metric"],
            value=one["value"],
            limit=one["limit"],
            n=one["n"],
            says=one["says"],
            act=Act(one["act"]),
            deployment=one["subject"] if one["act"] in {Act.TAKE_OUT, Act.HOLD} and one["subject"] else None,
            stratum=one["subject"] if one["act"] == Act.ROLL_BACK else None,
            interval=tuple(one["interval"]) if one["interval"] else None,
            window=(rfc3339(one["since_us"]), rfc3339(one["until_us"])),
        )
        for one in found["document"]["actions"]
    ]


def scope(conn: Connection, flag: str, now: int) -> list[str] | None:
    """The strata that the verdict is ready for, while it is fresh; None where nobody judged lately."""
    found = latest(conn, flag)
    if found is None or now - found["checked_us"] > _FRESH_US:
        return None
    strata: list[str] = found["document"]["scope"]
    return strata


def lacking(conn: Connection, flag: str, now: int) -> str:
    """Why the verdict does not let the ramp go on, in words; empty where it does."""
    found = latest(conn, flag)
    if found is None:
        return "the verdict was not yet asked for"
    if (age := now - found["checked_us"]) > _FRESH_US:
        return f"the verdict is {lasting(age)} old"
    return f"the verdict is {found['state']} ({found['reason']})" if found["state"] in _BLOCKING else ""
