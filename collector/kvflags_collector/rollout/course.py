# SPDX-License-Identifier: Apache-2.0
"""The course of a rollout: pause it, resume it, promote it, take the last change of its aim back."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, select

from kvflags.errors import Conflict, ErrorCode
from kvflags.flags import BUCKETS, Flag, Phase, Target
from kvflags_collector.rollout import assign, flags, ramp
from kvflags_collector.store.control_tables import flag_revisions

__all__ = ["make_default", "pause", "promote", "resume", "undo"]

# What `undo` takes back. Phase and kill switch are not among them: what was stopped is started on purpose.
_AIM = ("target", "overrides", "enrolment", "holdback", "rolled_back")


def pause(conn: Connection, key: str, *, author: str, reason: str, revision: int | None = None, now: int) -> Flag:
    """Nobody new is treated; what was dealt stays. Pausing twice changes nothing. Writes."""
    flag = flags.based_on(conn, key, revision)
    if flag.phase == Phase.PAUSED:
        return flag
    if flag.phase != Phase.RUNNING:
        raise _wrong_phase(flag, "only what is running can be paused")
    paused = replace(flag, phase=Phase.PAUSED)
    return flags.revise(conn, paused, "pause", author=author, reason=reason, now=now)


def resume(conn: Connection, key: str, *, author: str, reason: str, revision: int | None = None, now: int) -> Flag:
    """Go on after a pause. What became eligible meanwhile is dealt by the next tick. Writes."""
    flag = flags.based_on(conn, key, revision)
    if flag.phase == Phase.RUNNING:
        return flag
    if flag.phase != Phase.PAUSED:
        raise _wrong_phase(flag, f"`kvflags rollout start {key}` starts what is not paused")
    running = replace(flag, phase=Phase.RUNNING)
    return flags.revise(conn, running, "resume", author=author, reason=reason, now=now)


def promote(conn: Connection, key: str, *, author: str, reason: str, revision: int | None = None, now: int) -> Flag:
    """Enter the next step of the ramp now: also the approval that a step may ask for. Writes.

    It holds for the revision it was given to: with another in force it is a Conflict, and nothing is entered.
    """
    flag = _running(flags.based_on(conn, key, revision))
    if flag.ramp is None or flag.ramp.following is None:
        message = f"the flag {key!r} has no step to go on to"
        hint = f"`kvflags rollout plan {key}` lays out a ramp; --default makes it the default"
        raise Conflict(message, hint=hint, code=ErrorCode.WRONG_PHASE)
    return ramp.enter(conn, flag, author=author, reason=reason, now=now)


def make_default(
    conn: Connection, key: str, *, author: str, reason: str, revision: int | None = None, now: int
) -> Flag:
    """Treat everybody eligible but a last holdback of 5 %, which the ramper ends after 14 days. Writes."""
    flag = _running(flags.based_on(conn, key, revision))
    if flag.default_since_us is not None:
        return flag
    held = max(flag.holdback, ramp.HOLDBACK)
    everybody = replace(
        flag, target=Target(share=BUCKETS), overrides={}, holdback=held, ramp=None, default_since_us=now
    )
    changed = flags.revise(conn, everybody, "make_default", author=author, reason=reason, now=now)
    assign.deal(conn, changed, now)
    return changed


def undo(
    conn: Connection,
    key: str,
    *,
    to: int | None = None,
    author: str,
    reason: str,
    revision: int | None = None,
    now: int,
) -> Flag:
    """Aim again as at revision `to`, or as before the last change of the aim. Writes.

    Conflict where there is nothing to go back to, and `wrong_phase` where the flag was stopped.
    """
    flag = flags.based_on(conn, key, revision)
    if flag.phase not in {Phase.DRAFT, Phase.RUNNING, Phase.PAUSED}:
        raise _wrong_phase(flag, f"`kvflags rollout start {key}` first")
    earlier = _aim_of(flags.document(conn, key, to)) if to is not None else _last_other_aim(conn, flag)
    if not earlier:
        message = f"the flag {key!r} has no {f'revision {to}' if to is not None else 'other aim to go back to'}"
        raise Conflict(message, hint=f"see `kvflags rollout history {key}`", code=ErrorCode.INVALID)
    if earlier == _aim_of(flag.to_json()):
        return flag
    restored = Flag.from_json(flag.to_json() | earlier)
    changed = flags.revise(conn, restored, "undo", author=author, reason=reason, now=now)
    if changed.phase == Phase.RUNNING:
        assign.deal(conn, changed, now)
    return changed


def _running(flag: Flag) -> Flag:
    if flag.phase != Phase.RUNNING:
        raise _wrong_phase(flag, f"`kvflags rollout {'resume' if flag.phase == Phase.PAUSED else 'start'} {flag.key}`")
    return flag


def _last_other_aim(conn: Connection, flag: Flag) -> dict[str, object]:
    r = flag_revisions.c
    present = _aim_of(flag.to_json())
    earlier = conn.scalars(select(r.document).where(r.key == flag.key).order_by(r.revision.desc()))
    return next((aim for aim in map(_aim_of, earlier) if aim != present), {})


def _aim_of(document: dict[str, object]) -> dict[str, object]:
    return {name: document[name] for name in _AIM if name in document}


def _wrong_phase(flag: Flag, hint: str) -> Conflict:
    return Conflict(f"the flag {flag.key!r} is {flag.phase}", hint=hint, code=ErrorCode.WRONG_PHASE)
