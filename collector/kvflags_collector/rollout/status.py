# SPDX-License-Identifier: Apache-2.0
"""Where a rollout stands: the target beside what is real, deployment by deployment. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from kvflags.flags import Arm, Flag, PinState
from kvflags_collector.rollout import alarms, assign, flags, judged, leases, pins, ramp, standing, treated
from kvflags_collector.rollout.assign import Member
from kvflags_collector.rollout.graduation import graduation
from kvflags_collector.rollout.pins import Pin
from kvflags_collector.store import control_tables as tables

__all__ = ["status"]


def status(conn: Connection, key: str, now: int) -> dict[str, Any]:
    """`{flag, target, realised, ramp, graduation, deployments, alarms}`; NotFound for an unknown flag."""
    flag = flags.get(conn, key)
    members = assign.fleet(conn, flag, now)
    living = leases.head_count(conn, now)
    in_force = pins.open_pins(conn, tables.pins.c.flag == key)
    on = Counter(engine["deployment"] for engine in treated.living(conn, key, now))
    return {
        "flag": flags.shown(conn, key, now),
        "target": _target(flag),
        "realised": _realised(members),
        "ramp": ramp.shown(conn, flag, now),
        "graduation": graduation(conn, flag, now, judged.scope(conn, key, now)),
        "deployments": [
            _deployment(conn, flag, member, in_force=in_force, living=living, now=now)
            | {"treated_engines": on[member.deployment]}
            for member in members
        ],
        "alarms": alarms.standing(conn, deployments={pin.deployment for pin in in_force}),
    }


def _target(flag: Flag) -> dict[str, Any]:
    return {
        "default": str(flag.target) if flag.target else None,
        "overrides": {backend: str(target) for backend, target in sorted(flag.overrides.items())},
    }


def _realised(members: Sequence[Member]) -> dict[str, Any]:
    """Counts of deployments. share: treated among those dealt to an arm, null while there are none."""
    arms = [member.previous.arm for member in members if member.previous]
    treated, control = arms.count(Arm.TREATMENT), arms.count(Arm.CONTROL)
    return {
        "eligible": sum(member.eligible and member.complete for member in members),
        "enrolled": treated + control,
        "treated": treated,
        "control": control,
        "share": treated / (treated + control) if treated + control else None,
    }


def _deployment(
    conn: Connection,
    flag: Flag,
    member: Member,
    *,
    in_force: Iterable[Pin],
    living: dict[tuple[str | None, str], int],
    now: int,
) -> dict[str, Any]:
    mine = {pin.generation: pin for pin in in_force if pin.deployment == member.deployment}
    generations = {generation for name, generation in living if name == member.deployment} | set(mine)
    dealt, ruling = member.previous, standing.rule(conn, flag, member.deployment, now)
    # Pending: what the next generation will run where something else lives.
    differs = any(pin.variant != ruling.variant for pin in mine.values())
    return {
        "deployment": member.deployment,
        "arm": dealt.arm if dealt else None,
        "comparison": dealt.comparison if dealt else None,
        "reason": dealt.reason if dealt else ruling.reason,
        "bucket": dealt.bucket if dealt else None,
        "generations": [
            _generation(name, mine.get(name), living.get((member.deployment, name), 0)) for name in sorted(generations)
        ],
        "pending": ruling.variant if differs else None,
    }


def _generation(name: str, pin: Pin | None, live: int) -> dict[str, Any]:
    condemned = pin is not None and pin.state == PinState.CONDEMNED
    return {
        "generation": name,
        "epoch": pin.epoch if pin else None,
        "variant": pin.variant if pin else None,
        "arm": pin.arm if pin else None,
        "comparison": pin.comparison if pin else None,
        "excluded_because": pin.excluded_because if pin else None,
        "state": pin.state if pin else "open",
        "reason": pin.reason if pin else None,
        "condemned_reason": pin.condemned_reason if pin else None,
        "live_engines": live,
        "to_replace": live if condemned else 0,
    }
