# SPDX-License-Identifier: Apache-2.0
"""Ramps: a rollout that raises itself, step by step, and stops itself. One function of the database and the time.

`advance` does at most one thing for a flag and does it in one revision, so a collector killed anywhere leaves either
the step before or the step after. Whoever is the ramper calls it; its lease is checked in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, select

from kvflags.errors import Conflict, ErrorCode, UsageError
from kvflags.flags import BUCKETS, Arm, Facts, Flag, Phase, Ramp, Step, Variant, expired
from kvflags_collector.rollout import assign, flags, guard, judged, leases, pins, steer
from kvflags_collector.rollout.audit import Actor
from kvflags_collector.rollout.guard import Act, Finding, Guard, circuit_breaker
from kvflags_collector.store import control_tables as tables
from kvflags_collector.store.rollup_tables import rollups_minute
from kvflags_collector.times import SECOND, lasting, rfc3339

__all__ = [
    "GUARDS",
    "HOLDBACK",
    "HOLDBACK_US",
    "advance",
    "effective",
    "enter",
    "plan",
    "shown",
    "waiting_for",
]

_KVFLAGS = "kvflags"
# The breaker looks at minutes, the verdict at what is frozen.
GUARDS: tuple[Guard, ...] = (circuit_breaker, judged.findings)

_FRESH_US = 3600 * SECOND

# Making it the default: one in twenty stays off for two weeks more, so that a slow harm can still be seen.
HOLDBACK, HOLDBACK_US = BUCKETS // 20, 14 * 86_400 * SECOND


def plan(
    conn: Connection,
    key: str,
    steps: Sequence[Step] | None,
    *,
    author: str,
    reason: str,
    revision: int | None = None,
    now: int,
) -> Flag:
    """Lay out a ramp (none: take it away) for a draft or a running flag; its first step is entered by the next tick.

    While a ramp is laid out the aim is locked: steps and hands would undo each other. Writes.
    """
    flag = flags.based_on(conn, key, revision)
    told = partial(flags.revise, author=author, reason=reason, now=now)
    if flag.phase not in {Phase.DRAFT, Phase.RUNNING, Phase.PAUSED}:
        hint = f"`kvflags rollout start {key}` first"
        raise Conflict(f"the flag {key!r} is {flag.phase}", hint=hint, code=ErrorCode.WRONG_PHASE)
    if steps is None:
        return flag if flag.ramp is None else told(conn, replace(flag, ramp=None), "clear_ramp")
    if not steps or len(steps) > 50:
        raise UsageError("a ramp has 1 to 50 steps", hint="such as --steps 1,2,5")
    _growing(steps)
    ramp = Ramp(tuple(steps), since_us=now)
    phase = Phase.RUNNING if flag.phase == Phase.DRAFT else flag.phase
    return told(conn, replace(flag, ramp=ramp, phase=phase), "plan_ramp")


def advance(conn: Connection, flag: Flag, now: int, guards: Iterable[Guard] = GUARDS) -> Flag:
    """Do what is due for one flag: stop on a finding, complete a default, or enter the next step. Writes.

    However late it comes, it enters one step, whose time begins then: nothing is treated that was not measured.
    """
    if flag.phase != Phase.RUNNING:
        return flag
    if findings := guard.fresh(conn, flag, [finding for asked in guards for finding in asked(conn, flag, now)]):
        return _stop(conn, flag, findings, now)
    if flag.default_since_us is not None and now - flag.default_since_us >= HOLDBACK_US:
        completed = replace(flags.completed(flag), ramp=None)
        says = "the last holdback is over"
        return flags.revise(conn, completed, "complete", author=_KVFLAGS, reason=says, now=now)
    if flag.ramp is None or flag.ramp.following is None or waiting_for(conn, flag, now):
        return flag
    return enter(conn, flag, author=_KVFLAGS, reason="the step's time and sample are complete", now=now)


def enter(conn: Connection, flag: Flag, *, author: str, reason: str, now: int) -> Flag:
    """Enter the next step of the flag's ramp, whatever it waits for. Writes."""
    step = flag.ramp.following if flag.ramp else None
    assert flag.ramp is not None, "the caller looked"
    assert step is not None, "the caller looked"
    at = flag.ramp.at + 1
    evidence = {"step": at, "treated_and_effective": effective(conn, flag, now), "since": rfc3339(flag.ramp.since_us)}
    moved = replace(flag, target=step.target, ramp=replace(flag.ramp, at=at, since_us=now))
    changed = flags.revise(conn, moved, "ramp_step", author=author, reason=reason, now=now, evidence=evidence)
    assign.deal(conn, changed, now)
    return changed


def waiting_for(conn: Connection, flag: Flag, now: int) -> list[str]:
    """What the next step still waits for, in words: expiry, time, sample, analysis, approval (last). Empty: it is due.

    An expired flag goes no further by itself: it was to be decided by then, and a rollout that grows on while nobody
    looks is what the day was declared against. What it reached stays, guards stay armed, and a person may go on.
    """
    ramp = flag.ramp
    if ramp is None or ramp.following is None:
        return []
    waits = []
    if expired(flag.expires, now):
        waits.append(f"expiry: it expired on {flag.expires}; kvflags flags extend {flag.key} --expires DAY")
    if ramp.at >= 0:
        step, age = ramp.steps[ramp.at], now - ramp.since_us
        # A clock that was set back makes an age negative: then the step has all of its time still before it.
        if age < step.hold_s * SECOND:
            waits.append(f"time: {lasting(max(age, 0))} of {lasting(step.hold_s * SECOND)}")
        if (number := effective(conn, flag, now)) < step.sample:
            waits.append(f"sample: {number} of {step.sample} treated deployments are effective")
        if not _fresh(conn, now):
            waits.append("analysis: no transfer of the treatment arm was measured within the last hour")
        elif doubt := judged.lacking(conn, flag.key, now):
            waits.append(f"analysis: {doubt}")
    if ramp.following.approval and not waits:
        waits.append(f"approval: kvflags rollout promote {flag.key} --revision {flag.revision}")
    return waits


def shown(conn: Connection, flag: Flag, now: int) -> dict[str, Any] | None:
    """The ramp for the status: its steps, where it is, and what it waits for."""
    if flag.ramp is None:
        return None
    steps = [step.to_json() | {"says": str(step.target)} for step in flag.ramp.steps]
    waits = waiting_for(conn, flag, now)
    return {"steps": steps, "at": flag.ramp.at, "since": rfc3339(flag.ramp.since_us), "waiting_for": waits}


def effective(conn: Connection, flag: Flag, now: int) -> int:
    """How many treated deployments have engines that live, all of them with the layout in effect."""
    p, a = tables.pins.c, tables.assignments.c
    treated = set(conn.scalars(select(a.deployment).where(a.flag == flag.key, a.arm == Arm.TREATMENT)))
    on = {
        (pin.deployment, pin.generation)
        for pin in pins.open_pins(conn, p.flag == flag.key, p.variant == "on", p.arm == Arm.TREATMENT)
    }
    found: dict[str, list[bool]] = {}
    for engine in leases.live_engines(conn, now):
        if (engine["deployment"], engine["generation"]) in on and engine["deployment"] in treated:
            found.setdefault(engine["deployment"], []).append(bool(engine["effective"]))
    return sum(all(each) for each in found.values())


def _fresh(conn: Connection, now: int) -> bool:
    # Guardrails that find nothing because nothing is measured say nothing: silence never advances a ramp.
    m = rollups_minute.c
    recent = (m.arm == Arm.TREATMENT, m.minute_us > now - _FRESH_US, m.transfers > 0)
    return conn.execute(select(m.minute_us).where(*recent).limit(1)).first() is not None


def _stop(conn: Connection, flag: Flag, findings: Sequence[Finding], now: int) -> Flag:
    """The fleet's finding ends the rollout, a stratum's switches that off, and any other holds until a person looks.

    Either way a deployment that was found to be harmed is taken out.
    """
    for finding in findings:
        if finding.act == Act.TAKE_OUT:
            _take_out(conn, flag, finding, now)
    told = partial(_told, conn, findings=findings, now=now)
    if any(finding.act == Act.ABORT for finding in findings):
        pins.condemn_flag(conn, flag.key, "guardrail")
        return told(replace(flag, phase=Phase.ABORTED), "guardrail_abort", Act.ABORT)
    off = [finding.stratum for finding in findings if finding.act == Act.ROLL_BACK and finding.stratum]
    rolled_back = replace(flag, rolled_back=tuple(sorted({*flag.rolled_back, *off})))
    for stratum in off:
        _condemn_stratum(conn, flag, stratum)
    if len(off) < len(findings):
        return told(replace(rolled_back, phase=Phase.PAUSED), "guardrail_hold", None)
    return told(rolled_back, "guardrail_roll_back", Act.ROLL_BACK)


def _told(
    conn: Connection, flag: Flag, action: str, first: Act | None, *, findings: Sequence[Finding], now: int
) -> Flag:
    says = next(finding.says for finding in findings if first in {None, finding.act})
    evidence = {"findings": [finding.to_json() for finding in findings]}
    return flags.revise(conn, flag, action, author=_KVFLAGS, reason=says, now=now, evidence=evidence)


def _condemn_stratum(conn: Connection, flag: Flag, stratum: str) -> None:
    """What lives there with the feature on is to be replaced; what replaces it meets the flag's gate."""
    e, p = tables.engines.c, tables.pins.c
    rows = conn.execute(select(e.deployment, e.generation, e.facts).where(e.deployment.is_not(None)))
    there = {(row.deployment, row.generation) for row in rows if Facts.from_json(row.facts).stratum == stratum}
    for pin in pins.open_pins(conn, p.flag == flag.key, p.variant == Variant.ON):
        if (pin.deployment, pin.generation) in there:
            pins.condemn(conn, pin, "guardrail")


def _take_out(conn: Connection, flag: Flag, finding: Finding, now: int) -> None:
    assert finding.deployment is not None, "the fleet's findings were dealt with"
    p = tables.pins.c
    for pin in pins.open_pins(conn, p.flag == flag.key, p.deployment == finding.deployment):
        pins.condemn(conn, pin, "guardrail")
    # Else its next generation would be treated again: a person who knows the cause opts it back in.
    actor = Actor(author=_KVFLAGS, reason=finding.says)
    steer.opt(conn, flag.key, finding.deployment, "out", actor=actor, now=now)


def _growing(steps: Sequence[Step]) -> None:
    sizes = [(step.target.share is not None, step.target.share or step.target.count or 0) for step in steps]
    kinds = {kind for kind, _ in sizes}
    if len(kinds) > 1 or any(after[1] <= before[1] for before, after in pairwise(sizes)):
        message = "the steps of a ramp grow, all as percentages or all as counts"
        raise UsageError(message, hint="such as --steps 1%,5%,25%")
