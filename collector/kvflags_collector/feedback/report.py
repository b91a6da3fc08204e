# SPDX-License-Identifier: Apache-2.0
"""The report on a flag, as JSON of schema `kvflags.report/1`: the verdict and everything it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, select

from kvflags.features import FEATURES
from kvflags.flags import Arm, Comparison, Flag
from kvflags_collector.feedback import effects, transfers
from kvflags_collector.feedback.signals import signals, summary
from kvflags_collector.feedback.totals import figures
from kvflags_collector.judge import layout
from kvflags_collector.judge.generations import Generation, generations
from kvflags_collector.judge.inputs import inputs
from kvflags_collector.rollout import flags, mixed
from kvflags_collector.store import control_tables as tables
from kvflags_collector.store.database import Database
from kvflags_collector.store.measures import merge
from kvflags_collector.store.rollups import oldest_dirty, roll
from kvflags_collector.times import rfc3339
from kvflags_collector.verdict.decide import verdict
from kvflags_collector.verdict.placebo import DeploymentVerdict

__all__ = ["SCHEMA", "build"]

SCHEMA = "kvflags.report/1"
# Nobody waits longer for a report; what is not rolled up by then shows in `fresh_as_of`.
_FOLD_S = 2.0


def build(db: Database, key: str, now: int) -> dict[str, Any]:
    """The report at `now` (microseconds). Blocks, with 2 s of rolling up at most; the API and the pages call it.

    NotFound (`unknown_flag`) for a key that no flag has.
    """
    with db.read() as conn:
        flags.get(conn, key)
    roll(db, now, seconds=_FOLD_S)
    with db.read() as conn:
        return _report(conn, flags.get(conn, key), now)


def _report(conn: Connection, flag: Flag, now: int) -> dict[str, Any]:
    found = transfers.add(conn, generations(conn, flag.key))
    layout.look(conn, found, now)
    judged = inputs(conn, flag, found, now)
    found_verdict = verdict(judged)
    alone = {one.deployment: one.verdict for one in judged.alone}
    raised = _alarms(conn, {one.deployment for one in found})
    return {
        "schema": SCHEMA,
        "flag": {name: flag.to_json()[name] for name in ("key", "feature", "phase", "revision", "target")},
        "generated_at": rfc3339(now),
        "fresh_as_of": rfc3339(min(oldest_dirty(conn, now) or now, now)),
        "verdict": effects.said(found_verdict),
        "outcomes": effects.outcomes(found_verdict),
        "strata": effects.strata(found_verdict),
        "arms": _arms(found),
        "deployments": [_row(one, flag) | {"verdict": _alone(one, alone)} for one in found],
        "alarms": raised,
        "feedback": summary(signals(conn, flag.key, now)),
        "data_health": {
            "effective_share": judged.effective_share,
            "mixed_generations": len({(a["deployment"], a["generation"]) for a in raised if a["kind"] == mixed.KIND}),
            "dropped_spans": sum(layout.dropped(one) for one in found),
            "expired": sum(one.told.expired for one in found),
            "incomplete": sum(one.totals.incomplete for one in found),
            "late": sum(one.totals.late for one in found),
        },
    }


def _alone(one: Generation, verdicts: Mapping[str, DeploymentVerdict]) -> str | None:
    """What its own change says, held against what controls do by themselves; null where it is not treated."""
    treated = one.latest and one.included and _arm_of(one) == Arm.TREATMENT
    return verdicts.get(one.deployment, DeploymentVerdict.INSUFFICIENT).value if treated else None


def _arms(found: Sequence[Generation]) -> list[dict[str, Any]]:
    """Both arms of the comparison, and what is in neither where there was any of it."""
    arms = [_arm(arm.value, [one for one in found if one.included and _arm_of(one) == arm]) for arm in Arm]
    rest = _arm(None, [one for one in found if not one.included])
    return arms if rest["transfers"] is None else [*arms, rest]


def _arm(arm: str | None, members: Sequence[Generation]) -> dict[str, Any]:
    whole = merge([one.totals for one in members])
    return {"arm": arm, "deployments": len({one.deployment for one in members}), **figures(whole)}


def _row(one: Generation, flag: Flag) -> dict[str, Any]:
    return {
        "deployment": one.deployment or None,
        "generation": one.generation,
        "epoch": one.pin["epoch"] if one.pin else None,
        "latest": one.latest,
        "state": one.pin["state"] if one.pin else None,
        "arm": _arm_of(one),
        "comparison": (Comparison.INCLUDED if one.included else Comparison.EXCLUDED).value,
        "excluded_because": one.excluded_because,
        "variant": one.pin["variant"] if one.pin else None,
        **figures(one.totals),
        "layout": one.layout,
        "exercised": layout.exercised(one),
        "refusals": layout.refused(one, FEATURES[flag.feature]),
        "problems": sorted(layout.problems(one)),
        "dropped": layout.dropped(one),
    }


def _arm_of(one: Generation) -> str | None:
    return one.pin["arm"] if one.pin else None


def _alarms(conn: Connection, deployments: set[str]) -> list[dict[str, Any]]:
    a = tables.alarms
    rows = conn.execute(select(a).order_by(a.c.first_us, a.c.id)).mappings()
    return [_alarm(row) for row in rows if row["deployment"] in deployments]


def _alarm(row: RowMapping) -> dict[str, Any]:
    return {
        "kind": row["kind"],
        "deployment": row["deployment"],
        "generation": row["generation"],
        "epoch": row["epoch"],
        "says": mixed.says(row["deployment"], row["generation"], row["detail"]),
        "first_at": rfc3339(row["first_us"]),
        "ended_at": rfc3339(row["ended_us"]),
    }
