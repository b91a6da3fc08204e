# SPDX-License-Identifier: Apache-2.0
"""Flags kept as files: what a file says becomes the flag, in one revision, or is only compared with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import Connection, select, update

from kvflags.errors import Conflict, ErrorCode, UsageError
from kvflags.flags import Flag, Phase, range_problem
from kvflags_collector.rollout import assign, flags
from kvflags_collector.store import control_tables as tables

__all__ = ["FIELDS", "apply", "archive"]

# What a file may say. Phase, kill switch and ramp are acts of people at a time, and stay out of files.
FIELDS = (
    "target",
    "overrides",
    "enrolment",
    "holdback",
    "held_back",
    "labels",
    "vllm",
    "baseline_s",
    "quiet_s",
    "criteria",
    "expires",
)


def apply(
    conn: Connection,
    key: str,
    feature: str,
    said: Mapping[str, Any],
    *,
    author: str,
    reason: str,
    revision: int | None = None,
    now: int,
) -> list[dict[str, Any]]:
    """Make the flag as the file says, created where there is none; what differs, empty when nothing did. Writes.

    What the file leaves out becomes the default again, so that the file is the whole truth about these fields. A dry
    run is this call in a transaction that is rolled back: it meets every refusal that the real one would.
    """
    _check(said)
    before = _present(conn, key)
    if before is None:
        quiet = {name: said.get(name, _DEFAULTS[name]) for name in ("baseline_s", "quiet_s")}
        flag = flags.create(conn, key=key, feature=feature, author=author, reason=reason, now=now, **quiet)
    else:
        flag = flags.based_on(conn, key, revision)
    if flag.feature != feature:
        message = f"the flag {key!r} switches {flag.feature}, the file says {feature}"
        raise Conflict(message, hint="a flag keeps its feature; use another key", code=ErrorCode.INVALID)
    wanted = _wanted(flag, said)
    _check_aim(flag, wanted)
    diff = flags.difference(before or {}, wanted.to_json())
    if wanted != flag:
        changed = flags.revise(conn, wanted, "apply", author=author, reason=reason, now=now)
        if changed.phase == Phase.RUNNING:
            assign.deal(conn, changed, now)
    return diff


def archive(conn: Connection, key: str, *, author: str, reason: str, revision: int | None = None, now: int) -> Flag:
    """Put an ended flag away: its feature is free for another. Twice changes nothing. Writes.

    Conflict while it is not ended, or while generations that it switched on live.
    """
    flag = flags.based_on(conn, key, revision)
    f = tables.flags
    if conn.scalar(select(f.c.archived_us).where(f.c.key == key)) is not None:
        return flag
    if flag.phase not in {Phase.DRAFT, Phase.ABORTED, Phase.COMPLETED}:
        hint = f"`kvflags rollout abort {key}` or `kvflags rollout promote {key} --default` ends it"
        raise Conflict(f"the flag {key!r} is {flag.phase}", hint=hint, code=ErrorCode.WRONG_PHASE)
    on = select(tables.pins.c.id).where(tables.pins.c.flag == key, tables.pins.c.closed_us.is_(None))
    if flag.phase != Phase.COMPLETED and conn.execute(on.where(tables.pins.c.variant == "on").limit(1)).first():
        hint = f"`kvflags rollout abort {key} --wait` waits until none is left"
        raise Conflict(f"generations live that {key!r} switched on", hint=hint, code=ErrorCode.WRONG_PHASE)
    conn.execute(update(f).where(f.c.key == key).values(archived_us=now))
    return flags.revise(conn, flag, "archive", author=author, reason=reason, now=now)


_DEFAULTS: dict[str, Any] = {
    one.name: Flag(key="", feature="", salt_enrolment="", salt_arm="").to_json()[one.name] for one in fields(Flag)
}


def _present(conn: Connection, key: str) -> dict[str, Any] | None:
    document: dict[str, Any] | None = conn.scalar(select(tables.flags.c.document).where(tables.flags.c.key == key))
    return document


def _wanted(flag: Flag, said: Mapping[str, Any]) -> Flag:
    wanted = Flag.from_json(flag.to_json() | {name: said.get(name, _DEFAULTS[name]) for name in FIELDS})
    aimed = wanted.target is not None or wanted.overrides
    # As with `rollout set`: a target starts a draft.
    return replace(wanted, phase=Phase.RUNNING) if aimed and flag.phase == Phase.DRAFT else wanted


def _check(said: Mapping[str, Any]) -> None:
    if unknown := sorted(set(said) - set(FIELDS)):
        raise UsageError(f"a flag has no {', '.join(unknown)}", hint=f"fields: {', '.join(FIELDS)}")
    flags.check_criteria(said.get("criteria", ()))
    if wrong := range_problem(said.get("vllm", "")):
        raise UsageError(f"vllm: {wrong}", hint="such as '>=0.30,<0.33'")


def _check_aim(flag: Flag, wanted: Flag) -> None:
    for backend in wanted.overrides:
        flags.known_backend(flag.feature, backend)
    if flag.ramp is None or flag.ramp.following is None:
        return
    if (wanted.target, wanted.overrides) != (flag.target, flag.overrides):
        hint = f"leave target out of the file, or `kvflags rollout plan {flag.key} --clear`"
        raise Conflict(f"a ramp steers the flag {flag.key!r}", hint=hint, code=ErrorCode.WRONG_PHASE)
