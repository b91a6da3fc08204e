# SPDX-License-Identifier: Apache-2.0
"""The life of a flag: created, aimed, started, stopped. Every change is a revision with an author and a reason."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select, update

from kvflags.errors import Conflict, ErrorCode, NotFound, UsageError
from kvflags.features import FEATURES
from kvflags.flags import BUCKETS, Flag, Phase, Target, criterion_problem, expired
from kvflags_collector.rollout import assign, pins
from kvflags_collector.store.control_tables import flag_revisions, flags
from kvflags_collector.store.places import WHOLE, Place
from kvflags_collector.times import rfc3339

__all__ = [
    "abort",
    "based_on",
    "by_feature",
    "check_criteria",
    "completed",
    "create",
    "difference",
    "document",
    "extend",
    "get",
    "keys",
    "kill_switch",
    "known_backend",
    "listing",
    "revise",
    "set_target",
    "shown",
    "start",
    "target",
]


def get(conn: Connection, key: str) -> Flag:
    """The flag of that key. NotFound (`unknown_flag`) otherwise."""
    document = conn.scalar(select(flags.c.document).where(flags.c.key == key))
    if document is None:
        known = ", ".join(conn.scalars(select(flags.c.key).order_by(flags.c.key).limit(10))) or "none yet"
        raise NotFound(f"there is no flag {key!r}", hint=f"flags: {known}", code=ErrorCode.UNKNOWN_FLAG)
    return Flag.from_json(document)


# Built once: every heartbeat and every registration asks it.
_STANDING = select(flags.c.document).where(flags.c.archived_us.is_(None)).order_by(flags.c.key)


def by_feature(conn: Connection, features: Iterable[str] | None = None) -> dict[str, Flag]:
    """The unarchived flag of each feature; of those given, or of all."""
    found = {flag.feature: flag for flag in map(Flag.from_json, conn.scalars(_STANDING))}
    return found if features is None else {name: flag for name, flag in found.items() if name in set(features)}


def shown(conn: Connection, key: str, now: int) -> dict[str, Any]:
    """The flag as the API shows it: the document with its times, whether it expired, and the last change."""
    flag = get(conn, key)
    row = conn.execute(select(flags.c.created_us, flags.c.updated_us).where(flags.c.key == key)).one()
    last = conn.execute(
        select(flag_revisions).where(flag_revisions.c.key == key, flag_revisions.c.revision == flag.revision)
    ).mappings()
    change = last.one()
    return {
        **flag.to_json(),
        "expired": expired(flag.expires, now),
        "created_at": rfc3339(row.created_us),
        "updated_at": rfc3339(row.updated_us),
        "last_change": {name: change[name] for name in ("action", "author", "reason")},
    }


def listing(conn: Connection, now: int, place: Place = WHOLE) -> list[dict[str, Any]]:
    """The unarchived flags from a place on, as `shown`, by key."""
    return [shown(conn, key, now) for key in keys(conn, place)]


def keys(conn: Connection, place: Place = WHOLE) -> list[str]:
    """Those of the unarchived flags from a place on, in order."""
    standing = select(flags.c.key).where(flags.c.archived_us.is_(None))
    return list(conn.scalars(place.rising(standing, flags.c.key)))


def create(
    conn: Connection,
    *,
    key: str,
    feature: str,
    baseline_s: int,
    quiet_s: int,
    criteria: Sequence[str] = (),
    expires: str | None = None,
    author: str,
    reason: str,
    now: int,
) -> Flag:
    """A new flag in phase `draft`; pins every live generation `off`, so that none is on before it was observed."""
    if feature not in FEATURES:
        raise UsageError(f"there is no feature {feature!r}", hint=f"features: {', '.join(sorted(FEATURES))}")
    if conn.scalar(select(flags.c.key).where(flags.c.key == key)) is not None:
        raise Conflict(f"the flag {key!r} exists", hint=f"see `kvflags flags show {key}`", code=ErrorCode.FLAG_EXISTS)
    if taken := by_feature(conn, [feature]):
        other = taken[feature].key
        raise Conflict(
            f"the feature {feature} has a flag: {other!r}", hint=f"use {other!r}", code=ErrorCode.FEATURE_TAKEN
        )
    check_criteria(criteria)
    flag = Flag(
        key=key,
        feature=feature,
        salt_enrolment=secrets.token_hex(8),
        salt_arm=secrets.token_hex(8),
        baseline_s=baseline_s,
        quiet_s=quiet_s,
        criteria=tuple(criteria),
        expires=expires,
    )
    row = {"key": key, "feature": feature, "revision": 1, "phase": flag.phase, "document": flag.to_json()}
    conn.execute(flags.insert().values(**row, created_us=now, updated_us=now))
    _record(conn, flag, "create", author=author, reason=reason, now=now)
    pins.pin_live_off(conn, flag, now)
    return flag


def set_target(
    conn: Connection,
    key: str,
    aim: Target | None,
    *,
    backend: str | None = None,
    author: str,
    reason: str,
    revision: int | None = None,
    now: int,
) -> Flag:
    """Aim at a share or a count; `aim` None takes a backend's override away. Starts a draft, deals the fleet anew.

    UsageError `unknown_backend`; Conflict `stale_revision`, or `wrong_phase` where the flag was stopped.
    """
    flag = based_on(conn, key, revision)
    if flag.phase not in {Phase.DRAFT, Phase.RUNNING}:
        hint = f"start it again with a reason first: POST /api/v1/flags/{key}/start"
        raise Conflict(f"the flag {key!r} is {flag.phase}", hint=hint, code=ErrorCode.WRONG_PHASE)
    if flag.ramp is not None and flag.ramp.following is not None:
        hint = f"`kvflags rollout promote {key}` goes on now; `kvflags rollout plan {key} --clear` takes the ramp away"
        raise Conflict(f"a ramp steers the flag {key!r}", hint=hint, code=ErrorCode.WRONG_PHASE)
    aimed = _aimed(flag, aim, backend)
    changed = revise(conn, replace(aimed, phase=Phase.RUNNING), "set_target", author=author, reason=reason, now=now)
    assign.deal(conn, changed, now)
    return changed


def target(percent: float | None, count: int | None) -> Target:
    """What a caller asked for, checked. UsageError unless it is one of percentage and count, and in range."""
    try:
        # Judged before rounding, which would let -0.0001 and not-a-number through or fail on them.
        if percent is not None and not 0 <= percent <= 100:
            raise ValueError("a percentage lies between 0 and 100")
        # 25.3 % is 25,300 buckets; rounding undoes what binary fractions do to 0.1.
        return Target(share=None if percent is None else round(percent * BUCKETS / 100), count=count)
    except ValueError as error:
        raise UsageError(str(error), hint="for example 25% or --count 2") from error


def kill_switch(
    conn: Connection, key: str, *, on: bool, author: str, reason: str, revision: int | None = None, now: int
) -> Flag:
    """Set or clear the kill switch. Setting condemns every pin `on`; clearing lifts no condemnation."""
    flag = based_on(conn, key, revision)
    if flag.kill_switch == on:
        return flag
    action = "kill_switch_on" if on else "kill_switch_off"
    changed = revise(conn, replace(flag, kill_switch=on), action, author=author, reason=reason, now=now)
    if on:
        pins.condemn_flag(conn, key, "kill_switch")
    return changed


def abort(conn: Connection, key: str, *, author: str, reason: str, revision: int | None = None, now: int) -> Flag:
    """Stop the rollout: phase `aborted`, every pin `on` condemned. Aborting twice changes nothing."""
    flag = based_on(conn, key, revision)
    if flag.phase == Phase.ABORTED:
        return flag
    changed = revise(conn, replace(flag, phase=Phase.ABORTED), "abort", author=author, reason=reason, now=now)
    pins.condemn_flag(conn, key, "abort")
    return changed


def start(conn: Connection, key: str, *, author: str, reason: str, revision: int | None = None, now: int) -> Flag:
    """Take a draft, paused or aborted flag to `running`; what was condemned stays condemned."""
    flag = based_on(conn, key, revision)
    if flag.phase == Phase.RUNNING:
        return flag
    if flag.phase == Phase.COMPLETED:
        raise Conflict(f"the flag {key!r} is completed", hint="create a new one", code=ErrorCode.WRONG_PHASE)
    changed = revise(conn, replace(flag, phase=Phase.RUNNING), "start", author=author, reason=reason, now=now)
    assign.deal(conn, changed, now)
    return changed


def extend(
    conn: Connection, key: str, expires: str | None, *, author: str, reason: str, revision: int | None = None, now: int
) -> Flag:
    """Move the day on which the flag expires; None: it never does. Writes.

    UsageError for a day that is over already: a flag expires by time passing, not by a slip of the hand.
    """
    flag = based_on(conn, key, revision)
    if expired(expires, now):
        raise UsageError(f"{expires} is over", hint="give a day that is still to come, such as 2027-06-01")
    if flag.expires == expires:
        return flag
    return revise(conn, replace(flag, expires=expires), "extend", author=author, reason=reason, now=now)


def check_criteria(criteria: Iterable[str]) -> None:
    """UsageError for what cannot be judged by a machine."""
    if wrong := next(filter(None, map(criterion_problem, criteria)), ""):
        raise UsageError(wrong, hint="such as 'verdict = ready', 'treated >= 8' or 'days_at_100 >= 14'")


def known_backend(feature: str, backend: str) -> None:
    """UsageError `unknown_backend` for a name that the feature does not know."""
    known = FEATURES[feature].backends
    if backend not in known:
        hint = f"backends: {', '.join(sorted(known))}"
        raise UsageError(f"there is no attention backend {backend!r}", hint=hint, code=ErrorCode.UNKNOWN_BACKEND)


def completed(flag: Flag) -> Flag:
    """The flag as the default: on where eligible, no arms; opt-outs stand."""
    return replace(flag, phase=Phase.COMPLETED)


def _aimed(flag: Flag, aim: Target | None, backend: str | None) -> Flag:
    if backend is None:
        if aim is None:
            raise UsageError("what to inherit from is the default target", hint="name the override: --backend NAME")
        return replace(flag, target=aim)
    known_backend(flag.feature, backend)
    others: Mapping[str, Target] = {name: kept for name, kept in flag.overrides.items() if name != backend}
    return replace(flag, overrides=others if aim is None else {**others, backend: aim})


def based_on(conn: Connection, key: str, revision: int | None) -> Flag:
    """The flag, if it is still at that revision (None: at any). Conflict `stale_revision` with what changed since."""
    flag = get(conn, key)
    if revision is not None and revision != flag.revision:
        message = f"the flag {key!r} is at revision {flag.revision}, the change was based on {revision}"
        hint = f"look again: `kvflags rollout status {key}`"
        before = document(conn, key, revision)
        diff = difference(before, flag.to_json())
        detail = {"diff": diff, "since": _since(conn, key, revision)} if before else None
        raise Conflict(message, hint=hint, code=ErrorCode.STALE_REVISION, detail=detail)
    return flag


def document(conn: Connection, key: str, revision: int) -> dict[str, Any]:
    """A flag's document at one revision, {} where there was none."""
    r = flag_revisions.c
    found: dict[str, Any] | None = conn.scalar(select(r.document).where(r.key == key, r.revision == revision))
    return found or {}


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`[{field, was, now}]` of two documents, without their revisions."""
    names = sorted({*before, *after} - {"revision"})
    changed = [name for name in names if before.get(name) != after.get(name)]
    return [{"field": name, "was": before.get(name), "now": after.get(name)} for name in changed]


def revise(
    conn: Connection,
    flag: Flag,
    action: str,
    *,
    author: str,
    reason: str,
    now: int,
    evidence: Mapping[str, Any] | None = None,
) -> Flag:
    """Store the flag as its next revision; `evidence` is what an automatic change acted on. Writes."""
    revised = replace(flag, revision=flag.revision + 1)
    values = {"revision": revised.revision, "phase": revised.phase, "document": revised.to_json(), "updated_us": now}
    conn.execute(update(flags).where(flags.c.key == flag.key).values(**values))
    _record(conn, revised, action, author=author, reason=reason, now=now, evidence=evidence)
    return revised


def _since(conn: Connection, key: str, revision: int) -> list[dict[str, Any]]:
    r = flag_revisions.c
    query = select(r.revision, r.action, r.author, r.reason).where(r.key == key, r.revision > revision)
    return [dict(row) for row in conn.execute(query.order_by(r.revision)).mappings()]


def _record(
    conn: Connection,
    flag: Flag,
    action: str,
    *,
    author: str,
    reason: str,
    now: int,
    evidence: Mapping[str, Any] | None = None,
) -> None:
    row = {"key": flag.key, "revision": flag.revision, "document": flag.to_json(), "action": action}
    said = {"author": author, "reason": reason, "evidence": evidence}
    conn.execute(flag_revisions.insert().values(**row, **said, recorded_us=now))
