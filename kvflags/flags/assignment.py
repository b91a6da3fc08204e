# SPDX-License-Identifier: Apache-2.0
"""Who is treated: enrolment, holdback and arm for a fleet at one revision of a flag. Arithmetic, no state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from kvflags.flags.bucketing import bucket
from kvflags.flags.model import BUCKETS, Arm, Assignment, Comparison, Flag, Target

__all__ = ["Candidate", "assign"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A deployment that was observed and is eligible. `previous` is what an earlier step dealt to it, if any."""

    deployment: str
    backend: str
    previous: Assignment | None = None


def assign(flag: Flag, candidates: Iterable[Candidate]) -> dict[str, Assignment]:
    """Deal every candidate its assignment under `flag`; the same inputs in any order give the same answer.

    A share p treats a deployment iff its arm bucket lies below p, so raising p only adds and lowering it releases the
    last first. A count treats the lowest buckets of its scope, and keeps those already treated while the count allows:
    a newcomer with a lower bucket must not evict anyone. A scope is all deployments of an overridden backend, or all
    the others.
    """
    scopes: dict[str | None, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        scopes[candidate.backend if candidate.backend in flag.overrides else None].append(candidate)
    dealt: dict[str, Assignment] = {}
    for scope, members in scopes.items():
        target = flag.target_for(scope or "")
        free = [member for member in members if _outside(flag, member) is None]
        treated = _treated(flag, target, free)
        for member in members:
            dealt[member.deployment] = _assignment(flag, member, treated=member.deployment in treated)
    return dealt


def _treated(flag: Flag, target: Target, free: list[Candidate]) -> set[str]:
    places = {member.deployment: bucket(flag.salt_arm, member.deployment) for member in free}
    if target.count is None:
        return {deployment for deployment, place in places.items() if place < (target.share or 0)}
    already = {m.deployment for m in free if m.previous is not None and m.previous.arm == Arm.TREATMENT}
    # The name breaks ties: two deployments in one bucket must not change places from one step to the next.
    ranked = sorted(places, key=lambda deployment: (deployment not in already, places[deployment], deployment))
    return set(ranked[: target.count])


def _outside(flag: Flag, member: Candidate) -> tuple[Arm | None, str] | None:
    """Arm and reason of a deployment that no target can treat; None for all others."""
    if bucket(flag.salt_enrolment, member.deployment) >= flag.enrolment:
        return None, "not_enrolled"
    if member.deployment in flag.held_back or bucket(flag.salt_arm, member.deployment) >= BUCKETS - flag.holdback:
        return Arm.CONTROL, "holdback"
    return None


def _assignment(flag: Flag, member: Candidate, *, treated: bool) -> Assignment:
    before = member.previous
    was_treated = before is not None and before.ever_treated
    unbroken = before is not None and before.arm == Arm.TREATMENT and before.comparison == Comparison.INCLUDED
    # What was treated and released carries its history with it: it is no fair control, and no fresh treatment either.
    tainted = was_treated and not (treated and unbroken)
    arm, reason = _outside(flag, member) or (Arm.TREATMENT if treated else Arm.CONTROL, "assigned")
    if tainted and not treated:
        arm, reason = None, "released"
    return Assignment(
        deployment=member.deployment,
        arm=arm,
        comparison=Comparison.EXCLUDED if tainted or arm is None else Comparison.INCLUDED,
        reason=reason,
        bucket=bucket(flag.salt_arm, member.deployment),
        backend=member.backend,
        ever_treated=was_treated or treated,
    )
