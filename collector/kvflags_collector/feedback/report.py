# SPDX-License-Identifier: Apache-2.0
"""The report on a flag, as JSON of schema `kvflags.report/1` (see `document`): the verdict and all it rests on.

A pure function of what is stored at one time, so the same time gives the same bytes.
"""

from __future__ import annotations

from sqlalchemy import Connection

from kvflags.errors import UsageError
from kvflags.flags import Flag, expired
from kvflags_collector.feedback import coverage, default, effects, past, rows, signs, transfers, width
from kvflags_collector.feedback.document import SCHEMA, FlagShown, Report
from kvflags_collector.feedback.outlook import needed
from kvflags_collector.feedback.raised import mixtures, raised
from kvflags_collector.feedback.signals import signals, summary
from kvflags_collector.judge import layout
from kvflags_collector.judge.generations import Generation, generations
from kvflags_collector.judge.inputs import frozen, inputs
from kvflags_collector.rollout import assign, canaries, flags
from kvflags_collector.rollout.graduation import graduation
from kvflags_collector.store.database import Database
from kvflags_collector.store.rollups import oldest_dirty, roll
from kvflags_collector.times import rfc3339
from kvflags_collector.verdict.decide import verdict

__all__ = ["SCHEMA", "build"]

# Nobody waits longer for a report; what is not rolled up by then shows in `fresh_as_of`.
_FOLD_S = 2.0


def build(db: Database, key: str, now: int, *, as_of_us: int | None = None) -> Report:
    """The report at `now` (microseconds). Blocks, with 2 s of rolling up at most; the API and the pages call it.

    as_of_us: the report of a past time instead, from what is kept for good: the same bytes whenever it is asked for.
    NotFound (`unknown_flag`) for a key that no flag has, or had then; UsageError for a time that is still to come.
    """
    if as_of_us is not None:
        if as_of_us > now:
            raise UsageError(f"{rfc3339(as_of_us)} is still to come", hint="leave --as-of out for the report of now")
        with db.read() as conn:
            return _report(conn, past.flag_at(conn, key, as_of_us), as_of_us, live=False)
    with db.read() as conn:
        flags.get(conn, key)
    roll(db, now, seconds=_FOLD_S)
    with db.read() as conn:
        return _report(conn, flags.get(conn, key), now)


def _found(conn: Connection, key: str, now: int, *, live: bool) -> list[Generation]:
    """Every generation with what it transferred, and with the layouts of its engines where that is known."""
    if not live:
        return transfers.add(conn, past.generations_at(conn, key, now), days_until_us=past.days_until_us(now))
    found = transfers.add(conn, generations(conn, key))
    layout.look(conn, found, now)
    return found


def _report(conn: Connection, flag: Flag, now: int, *, live: bool = True) -> Report:
    found = _found(conn, flag.key, now, live=live)
    events = frozen(conn, flag, found, now)
    judged = inputs(conn, flag, found, events, now, live=live)
    come_to = verdict(judged)
    arms, deployments = rows.arms(found), rows.deployments(found, flag, judged)
    feedback = summary(signals(conn, flag.key, now))
    by_stratum = signs.by_stratum(judged, feedback["items"])
    alarms = raised(conn, {one.deployment for one in found}, now)
    criteria = graduation(conn, flag, now, come_to.scope)["criteria"] if live else []
    at = rfc3339(now)
    return {
        "schema": SCHEMA,
        "flag": _flag(flag, now),
        "generated_at": at,
        "fresh_as_of": rfc3339(min(oldest_dirty(conn, now) or now, now)) if live else at,
        "as_of": None if live else at,
        "unknown": [] if live else list(past.UNKNOWN),
        "verdict": effects.said(come_to),
        "evidence": width.evidence(judged, come_to.compared, found, arms, events),
        "outcomes": effects.outcomes(come_to, effects.levels(events, arms)),
        "strata": effects.strata(come_to, by_stratum),
        "signs": signs.total(by_stratum.values()),
        "arms": arms,
        "errors": coverage.kinds(arms),
        "coverage": coverage.coverage(deployments, assign.fleet(conn, flag, now)) if live else None,
        "restart_cost": width.restart_cost(events),
        "needed": needed(judged, come_to, now),
        "criteria": criteria,
        "predicate": default.predicate(flag, come_to.scope, found),
        "way_back": default.way_back(flag),
        "reproduce": f"kvflags report {flag.key} --as-of {at}",
        "deployments": deployments,
        "alarms": alarms,
        "feedback": feedback,
        "data_health": {
            "effective_share": judged.effective_share,
            "mixed_generations": mixtures(alarms),
            "dropped_spans": sum(layout.dropped(one) for one in found),
            "expired": sum(one.told.expired for one in found),
            "incomplete": sum(one.totals.incomplete for one in found),
            "late": sum(one.totals.late for one in found),
            "canaries": canaries.counts(conn, flag.key, now),
        },
    }


def _flag(flag: Flag, now: int) -> FlagShown:
    aim = flag.target
    return {
        "key": flag.key,
        "feature": flag.feature,
        "phase": flag.phase.value,
        "revision": flag.revision,
        "target": {"share": aim.share, "count": aim.count} if aim else None,
        "expires": flag.expires,
        "expired": expired(flag.expires, now),
    }
