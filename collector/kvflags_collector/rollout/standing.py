# SPDX-License-Identifier: Apache-2.0
"""How a deployment stands under a flag: everything the precedence looks at, read from the ledger in one place."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, bindparam, select

from kvflags.features import FEATURES, Feature
from kvflags.flags import Assignment, Facts, Flag, Refusal, RuleClass, Ruling, Standing, evaluate
from kvflags_collector.rollout import declared, gate, leases, observe
from kvflags_collector.rollout.declared import Declaration
from kvflags_collector.store import control_tables as tables
from kvflags_collector.times import SECOND, lasting

__all__ = ["assignment", "opted", "rule", "standing", "unobserved", "unsafe"]


def _of(table: Table) -> tuple[ColumnElement[bool], ...]:
    return table.c.flag == bindparam("flag"), table.c.deployment == bindparam("deployment")


# Built once: every decision asks them.
_ROW = select(tables.deployments).where(tables.deployments.c.id == bindparam("deployment"))
_OPTED = select(tables.opts.c.opted).where(*_of(tables.opts))
_ASSIGNMENT = select(tables.assignments).where(*_of(tables.assignments))
_P = tables.pins.c
_SAFE_MODE = select(_P.id).where(*_of(tables.pins), _P.closed_us.is_(None), _P.condemned_reason == "safe_mode").limit(1)


def rule(conn: Connection, flag: Flag, deployment: str, now: int) -> Ruling:
    """What the deployment's next generation would be told, whoever registers first with facts as observed."""
    return evaluate(flag, standing(conn, flag, deployment, now))


def standing(
    conn: Connection, flag: Flag, deployment: str, now: int, *, role: str | None = None, facts: Facts | None = None
) -> Standing:
    """The standing of a generation about to be pinned; `role` and `facts` are those of the engine that registers."""
    row = conn.execute(_ROW, {"deployment": deployment}).mappings().first()
    stated = declared.of(conn, deployment)
    seen = observe.seen(conn, row, stated, now) if row else {}
    known = stated.over(facts) if facts else None
    feature = FEATURES[flag.feature]
    vouched = stated.waives and not (row and row["observed"])
    return Standing(
        refusals=(*gate.refusals(flag, seen, stated), *_refusing(feature, known, observed=bool(seen))),
        unobserved=unobserved(conn, flag, row, stated, now) if row else "never seen",
        changed=observe.changed(seen, role, known) if role and known and not vouched else (),
        assignment=assignment(conn, flag.key, deployment),
        opted=opted(conn, flag.key, deployment),
        waived=stated.waives,
        safe_mode=_in_safe_mode(conn, flag.key, deployment),
    )


def unsafe(feature: Feature, facts: Facts) -> tuple[Refusal, ...]:
    """The rules of class UNSAFE that these facts meet: the only ones that overrule a pin."""
    return tuple(refusal for refusal in feature.refusals(facts) if refusal.rule_class == RuleClass.UNSAFE)


def _refusing(feature: Feature, facts: Facts | None, *, observed: bool) -> tuple[Refusal, ...]:
    """What the registering engine's own facts refuse. Once observed, what was observed decides, safety apart.

    Before that its facts are all there is. What they do not tell yet (the backend, as a rule) is left to observation.
    """
    if facts is None or observed:
        return unsafe(feature, facts) if facts else ()
    return tuple(met for met in feature.refusals(facts) if not met.code.endswith(":unknown"))


def unobserved(conn: Connection, flag: Flag, row: RowMapping, stated: Declaration, now: int) -> str:
    """What observation still lacks, in words: an observation, or the rest of the baseline. Empty when complete."""
    if stated.waives:
        return ""
    if row["observed"] is None:
        living = leases.live_engines(conn, now, row["id"])
        newest = living[-1]["generation"] if living else None
        mine = [engine for engine in living if engine["generation"] == newest]
        return observe.lacking(mine, flag.quiet_s, now, stated.engines) or "just completed"
    age = now - row["baseline_us"]
    if age < flag.baseline_s * SECOND:
        return f"baseline: {lasting(age)} of {lasting(flag.baseline_s * SECOND)}"
    return ""


def opted(conn: Connection, flag: str, deployment: str) -> str | None:
    """`in` or `out` where somebody said so by hand."""
    opted: str | None = conn.scalar(_OPTED, {"flag": flag, "deployment": deployment})
    return opted


def assignment(conn: Connection, flag: str, deployment: str) -> Assignment | None:
    """What the last ramp step dealt to the deployment."""
    row = conn.execute(_ASSIGNMENT, {"flag": flag, "deployment": deployment}).mappings().first()
    return Assignment.from_json(dict(row)) if row else None


def _in_safe_mode(conn: Connection, flag: str, deployment: str) -> bool:
    # The cause lasts as long as the generation that died under `on` does.
    return conn.execute(_SAFE_MODE, {"flag": flag, "deployment": deployment}).first() is not None
