# SPDX-License-Identifier: Apache-2.0
"""Ramp steps: which deployments a flag's target treats. Dealt when the target changes; newcomers in between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sqlalchemy import Connection, RowMapping, or_, select, update

from kvflags.flags import Assignment, Candidate, Flag, Phase, Target, assign
from kvflags_collector.rollout import declared, gate, observe
from kvflags_collector.rollout.declared import NOTHING, Declaration
from kvflags_collector.store.control_tables import assignments, declarations, deployments
from kvflags_collector.times import SECOND

__all__ = ["Member", "deal", "deal_newcomers", "fleet"]

# A count is a number of deployments that exist. One that was not seen for a day is taken for gone, so that it does not
# hold a place; a deployment that is being replaced is back within minutes.
_PRESENT_US = 86_400 * SECOND


@dataclass(frozen=True, slots=True)
class Member:
    """One deployment of the fleet under a flag. `backend` is empty while none or several were observed."""

    deployment: str
    backend: str
    eligible: bool
    complete: bool
    present: bool
    previous: Assignment | None

    @property
    def candidate(self) -> Candidate:
        backend = self.previous.backend if self.previous and not self.backend else self.backend
        return Candidate(self.deployment, backend, self.previous)


def fleet(conn: Connection, flag: Flag, now: int) -> list[Member]:
    """Every identified deployment ever seen, by name."""
    known = conn.execute(select(assignments).where(assignments.c.flag == flag.key)).mappings()
    previous = {row["deployment"]: Assignment.from_json(dict(row)) for row in known}
    rows = conn.execute(select(deployments).order_by(deployments.c.id)).mappings().all()
    stated = declared.everywhere(conn)
    return [_member(conn, flag, row, stated.get(row["id"], NOTHING), previous.get(row["id"]), now) for row in rows]


def deal(conn: Connection, flag: Flag, now: int) -> None:
    """A ramp step: deal the whole fleet anew under the flag's target. Writes only what changed."""
    members = fleet(conn, flag, now)
    # A place already dealt is kept while the deployment restarts or its baseline runs anew, but not by one that is gone
    # or that a gate now refuses.
    inside = [m for m in members if m.present and m.eligible and (m.complete or m.previous)]
    outside = [m for m in members if m.previous and m not in inside]
    dealt = assign(flag, [m.candidate for m in inside]) | assign(_no_places(flag), [m.candidate for m in outside])
    _store(conn, flag, dealt.values(), {m.deployment: m.previous for m in members}, now)


def deal_newcomers(conn: Connection, flag: Flag, now: int) -> None:
    """Between steps: deal those that became eligible since; nobody else changes. Only while the flag is running."""
    if flag.phase != Phase.RUNNING or not _undealt(conn, flag):
        return
    members = fleet(conn, flag, now)
    new = {m.deployment for m in members if m.present and m.eligible and m.complete and not m.previous}
    if new:
        everyone = [m.candidate for m in members if m.previous or m.deployment in new]
        dealt = assign(flag, everyone)
        _store(conn, flag, (dealt[name] for name in sorted(new)), {}, now)


def _member(  # noqa: PLR0917 (everything that is known of one deployment)
    conn: Connection, flag: Flag, row: RowMapping, stated: Declaration, previous: Assignment | None, now: int
) -> Member:
    seen = observe.seen(conn, row, stated, now)
    backends = {facts.backend for each in seen.values() for facts in each}
    baseline = row["baseline_us"]
    return Member(
        deployment=row["id"],
        backend=(backends.pop() or "") if len(backends) == 1 else "",
        eligible=bool(seen) and not gate.refusals(flag, seen, stated),
        complete=stated.waives or (baseline is not None and now - baseline >= flag.baseline_s * SECOND),
        present=now - row["last_seen_us"] < _PRESENT_US,
        previous=previous,
    )


def _no_places(flag: Flag) -> Flag:
    """The same flag with every count at 0: a share holds for anyone, places are for those who are here."""

    def emptied(target: Target | None) -> Target | None:
        return Target(count=0) if target is not None and target.count is not None else target

    overrides = {name: emptied(target) or target for name, target in flag.overrides.items()}
    return replace(flag, target=emptied(flag.target), overrides=overrides)


def _undealt(conn: Connection, flag: Flag) -> bool:
    """Whether any observed deployment has no assignment yet: one cheap question for every tick."""
    dealt = select(assignments.c.deployment).where(assignments.c.flag == flag.key)
    vouched = deployments.c.id.in_(select(declarations.c.deployment))
    ready = or_(deployments.c.observed.is_not(None), vouched)
    query = select(deployments.c.id).where(ready, deployments.c.id.not_in(dealt))
    return conn.execute(query.limit(1)).first() is not None


def _store(
    conn: Connection, flag: Flag, dealt: Iterable[Assignment], before: dict[str, Assignment | None], now: int
) -> None:
    for assignment in dealt:
        if assignment == before.get(assignment.deployment):
            continue
        values = assignment.to_json() | {"flag": flag.key, "revision": flag.revision, "assigned_us": now}
        mine = (assignments.c.flag == flag.key, assignments.c.deployment == assignment.deployment)
        if before.get(assignment.deployment) is None:
            conn.execute(assignments.insert().values(**values))
        else:
            conn.execute(update(assignments).where(*mine).values(**values))
