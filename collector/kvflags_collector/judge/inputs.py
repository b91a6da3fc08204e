# SPDX-License-Identifier: Apache-2.0
"""What the verdict is asked about: the latest generations in the comparison, and for how long enough was treated."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, RowMapping, select

from kvflags.flags import BUCKETS, Arm, Flag, Phase
from kvflags.telemetry.instruments import InstrumentName
from kvflags_collector.judge import blocks, evidence, layout, strata, trials
from kvflags_collector.judge.generations import Generation
from kvflags_collector.judge.moments import Moment, moments
from kvflags_collector.rollout import canaries, guard, mixed
from kvflags_collector.store.control_tables import alarms, flag_revisions
from kvflags_collector.store.outcome_tables import outcomes_day
from kvflags_collector.times import SECOND
from kvflags_collector.verdict.evidence import Inputs, Minima
from kvflags_collector.verdict.treatment import Treatment

__all__ = ["frozen", "inputs"]

_SILENT = "nixl_telemetry_disabled"


def inputs(
    conn: Connection,
    flag: Flag,
    found: Sequence[Generation],
    rows: Sequence[RowMapping],
    now_us: int,
    *,
    live: bool = True,
) -> Inputs:
    """Of a flag, all its generations with their layouts filled in, and their `frozen` events, at a time.

    live: that time is now. Of a past one it is not known who was in which arm and who had fallen silent.
    """
    mixtures, named = _mixtures(conn, now_us), strata.read(conn)
    compared = [_treatment(one, mixtures, named) for one in found if one.latest and one.included]
    treated = sum(one.treated for one in compared)
    acted = guard.acted(conn, flag.key, now_us)
    drawn = trials.trials(conn, flag, now_us) if live else {}
    return Inputs(
        key=flag.key,
        running=flag.phase == Phase.RUNNING,
        deployments=compared,
        days=_days(conn, flag.key, treated / len(compared) if compared else 0.0, now_us),
        outcomes=_any_outcomes(conn, [one.deployment for one in compared], now_us),
        events=evidence.events(rows),
        fires=evidence.fires(blocks.runs(conn, flag.key, now_us), _included(conn, flag, found), acted),
        alone=evidence.alone(rows, acted),
        rolled_back=flag.rolled_back,
        canaries=canaries.mismatched(conn, flag.key, now_us),
        trials={**drawn, **evidence.left_out(rows)},
    )


def frozen(conn: Connection, flag: Flag, found: Sequence[Generation], now_us: int) -> list[RowMapping]:
    """The frozen events of what is in the comparison now."""
    return evidence.read(conn, flag.key, _epochs(found), now_us)


def _included(conn: Connection, flag: Flag, found: Sequence[Generation]) -> list[Moment]:
    epochs = _epochs(found)
    return [one for one in moments(conn, flag.key) if (one.deployment, one.generation, one.epoch) in epochs]


def _epochs(found: Sequence[Generation]) -> set[tuple[str, str, int]]:
    return {(one.deployment, one.generation, one.pin["epoch"]) for one in found if one.included and one.pin}


def _any_outcomes(conn: Connection, deployments: Sequence[str], now_us: int) -> bool:
    c = outcomes_day.c
    own = (c.deployment.in_(deployments), c.instrument == InstrumentName.TTFT, c.day_us <= now_us)
    return conn.execute(select(c.day_us).where(*own).limit(1)).first() is not None


def _treatment(one: Generation, mixtures: Collection[tuple[str, str, int]], named: strata.Strata) -> Treatment:
    assert one.pin is not None, "only a pin can be in the comparison"
    # A failed handshake may come from an engine that has no decision, hence no epoch.
    places = {(one.deployment, one.generation, epoch) for epoch in (0, one.pin["epoch"])}
    return Treatment(
        deployment=one.deployment,
        generation=one.generation,
        treated=one.pin["arm"] == Arm.TREATMENT,
        stratum=named.get((one.deployment, one.generation), strata.UNKNOWN),
        effective=one.layout["effective"],
        layout=layout.in_words(one.layout),
        mixed=not places.isdisjoint(mixtures),
        silent=_SILENT in layout.problems(one),
    )


def _mixtures(conn: Connection, now_us: int) -> set[tuple[str, str, int]]:
    """Mixed generations, also those that are over: what was measured meanwhile was measured all the same."""
    a = alarms.c
    query = select(a.deployment, a.generation, a.epoch).where(a.kind == mixed.KIND, a.first_us <= now_us)
    return {(deployment, generation, epoch) for deployment, generation, epoch in conn.execute(query)}


def _days(conn: Connection, key: str, realised: float, now_us: int) -> float:
    """For how long, up to now, the target has asked for the minimum; a count is taken at the share it came to."""
    r = flag_revisions.c
    query = select(r.document, r.recorded_us).where(r.key == key, r.recorded_us <= now_us).order_by(r.revision.desc())
    since_us = now_us
    for document, recorded_us in conn.execute(query):
        if not _enough(Flag.from_json(document), realised):
            break
        since_us = recorded_us
    return max(0, now_us - since_us) / (86_400 * SECOND)


def _enough(flag: Flag, realised: float) -> bool:
    if flag.phase != Phase.RUNNING or flag.kill_switch or flag.target is None:
        return False
    share = realised if flag.target.share is None else flag.target.share / BUCKETS
    return share >= Minima().share
