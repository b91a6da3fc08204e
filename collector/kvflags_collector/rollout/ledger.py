# SPDX-License-Identifier: Apache-2.0
"""Registration: creates or reads the pin. Prefill and decode agree because they are told the same row, verbatim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from kvflags.errors import Conflict, ErrorCode
from kvflags.features import FEATURES
from kvflags.flags import Arm, Comparison, Decision, Flag, Phase, PinState, Ruling, Variant, evaluate
from kvflags_collector.rollout import decide, flags, leases, pins
from kvflags_collector.rollout.heartbeats import heartbeat
from kvflags_collector.rollout.leases import Timing
from kvflags_collector.rollout.messages import Registration
from kvflags_collector.rollout.pins import Pin
from kvflags_collector.rollout.standing import standing, unsafe
from kvflags_collector.store import control_tables as tables
from kvflags_collector.times import rfc3339

__all__ = ["heartbeat", "register", "turned_on", "whose"]

# Safe mode: that many predecessors in a row died without a clean stop. Two can be an eviction and its retry.
_DEATHS = 3


_R = tables.registrations.c
# Built once: building a statement takes longer than running it, and a fleet that restarts registers all at once.
_REGISTRATION = select(tables.registrations).where(_R.id == bindparam("registration"))
_RENEW = update(tables.registrations).where(_R.id == bindparam("registration"))
_SEEN = update(tables.deployments).where(tables.deployments.c.id == bindparam("deployment"))
_TOLD = select(_R.told).where(_R.id == bindparam("registration"))
_DEPLOYMENT = select(_R.deployment).where(_R.id == bindparam("registration"))


def register(conn: Connection, body: Mapping[str, Any], now: int, timing: Timing | None = None) -> dict[str, Any]:
    """Answer a front end with one decision per feature it knows that has a flag; the answer of api.md. Writes.

    Idempotent by registration id. Conflict where that id was used for another deployment or generation.
    """
    timing, told = timing or Timing(), Registration.from_json(body)
    leases.bridge(conn, timing, now)
    if told.deployment is not None:
        pins.close_ended(conn, now, told.deployment)
        _see(conn, told.deployment, now)
    _enter(conn, told, timing, now)
    # Without an identity there is nobody to agree with: such an engine is observed, and never bucketed at random.
    known = flags.by_feature(conn, told.features) if told.deployment is not None else {}
    decisions = [_tell(conn, flag, told, told.deployment or "", now) for flag in known.values()]
    _note_told(conn, told, decisions)
    return {
        "decisions": [decision.to_json() for decision in decisions],
        "heartbeat_s": timing.heartbeat_s,
        "server_time": rfc3339(now),
    }


def whose(conn: Connection, registration_id: str) -> str:
    """The deployment of a registration, which it keeps; the registration itself where it names or is none."""
    return conn.scalar(_DEPLOYMENT, {"registration": registration_id}) or registration_id


def turned_on(conn: Connection, registration_id: str, now: int) -> bool:
    """Whether this registration has just pinned a generation `on`, in this transaction at `now`."""
    c = tables.pins.c
    mine = (c.pinned_by == registration_id, c.pinned_us == now, c.variant == Variant.ON)
    return conn.execute(select(c.id).where(*mine).limit(1)).first() is not None


def _see(conn: Connection, deployment: str, now: int) -> None:
    if conn.execute(_SEEN, {"deployment": deployment, "last_seen_us": now}).rowcount == 0:
        row = {"id": deployment, "first_seen_us": now, "last_seen_us": now}
        conn.execute(tables.deployments.insert().values(**row))


def _enter(conn: Connection, told: Registration, timing: Timing, now: int) -> None:
    """Insert or renew the registration with its first lease."""
    t = tables.registrations
    lease = leases.first_lease(timing, told.running, now)
    values: dict[str, Any] = {
        "role": told.role,
        "facts": told.facts.to_json(),
        "local": told.local,
        "kvflags": told.kvflags,
        "deaths": told.deaths,
        "running": told.running,
        "problems": list(told.problems),
    }
    before = conn.execute(_REGISTRATION, {"registration": told.registration_id}).mappings().first()
    if before is None:
        identity = {"id": told.registration_id, "deployment": told.deployment, "generation": told.generation}
        conn.execute(t.insert(), identity | values | {"registered_us": now, "lease_until_us": lease})
        return
    if (before["deployment"], before["generation"]) != (told.deployment, told.generation):
        message = "this registration id belongs to another deployment or generation"
        raise Conflict(message, hint="make a new id for each start", code=ErrorCode.INVALID)
    # A retry does not shorten what holds, and an engine that runs needs no starting lease again.
    until = max(lease, before["lease_until_us"])
    conn.execute(_RENEW, {"registration": told.registration_id, **values, "lease_until_us": until})


def _note_told(conn: Connection, told: Registration, decisions: Sequence[Decision]) -> None:
    """Keep the epoch that the engine belongs to: what it was told when it started, whatever was pinned since.

    An engine that runs another variant than it is told now, and was told something before, stays in its old epoch.
    """
    if told.local is not None:
        return
    before = conn.scalar(_TOLD, {"registration": told.registration_id}) or {}
    kept = {
        decision.flag: before[decision.flag]
        if decision.flag in before and told.running not in {None, decision.variant}
        else {"epoch": decision.epoch, "variant": decision.variant}
        for decision in decisions
    }
    conn.execute(_RENEW, {"registration": told.registration_id, "told": kept})


def _tell(conn: Connection, flag: Flag, told: Registration, deployment: str, now: int) -> Decision:
    pin = pins.open_pin(conn, flag.key, deployment, told.generation)
    if told.local is not None:
        pins.exclude(conn, deployment, told.generation, "forced")
        return _local(flag, told.local, pin)
    if pin is not None and _abandoned(conn, pin, told, now):
        pins.close(conn, pin, now)
        pin = None
    pin = pin or _pin(conn, flag, told, deployment, now)
    if pin.variant == Variant.ON and (told.refused or unsafe(FEATURES[flag.feature], told.facts)):
        return _off_for_safety(flag, pins.condemn(conn, pin, "unsafe_under_pin"))
    if told.deaths >= _DEATHS:
        pin = pins.condemn(conn, pin, "safe_mode")
    return pins.decision(flag, pin, decide.signed(conn, flag, pin, now))


def _pin(conn: Connection, flag: Flag, told: Registration, deployment: str, now: int) -> Pin:
    """The first registration of a generation pins it, whoever it is."""
    ruling, epoch = _ruling(conn, flag, told, deployment, now)
    by = told.registration_id
    pin = pins.make(conn, flag, deployment, told.generation, ruling, by=by, now=now, epoch=epoch)
    if any(row["local"] for row in leases.live_registrations(conn, now, deployment, told.generation)):
        pins.exclude(conn, deployment, told.generation, "forced")
    # What runs already or was handed out can be `on` although its cause for condemnation stands.
    if flag.kill_switch or flag.phase == Phase.ABORTED:
        pins.condemn(conn, pin, "kill_switch" if flag.kill_switch else "abort")
    return pins.open_pin(conn, flag.key, deployment, told.generation) or pin


def _ruling(conn: Connection, flag: Flag, told: Registration, deployment: str, now: int) -> tuple[Ruling, int | None]:
    """What is pinned, and the epoch where one is given: what was handed out, what runs already, or the precedence."""
    claims = decide.presented(conn, flag, told.presented, deployment=deployment, generation=told.generation, now=now)
    if claims is not None and told.running in {None, claims.variant}:
        arm = Arm(claims.arm) if claims.arm else None
        return Ruling(Variant(claims.variant), "handed_out", arm, Comparison(claims.comparison)), claims.epoch
    if told.running is not None:
        return Ruling(Variant(told.running), "already_running"), None
    ruling = evaluate(flag, standing(conn, flag, deployment, now, role=told.role, facts=told.facts))
    if ruling.variant == Variant.ON and "nixl_telemetry_disabled" in told.problems:
        # Nothing could be measured, so nothing is newly switched on; a pin would still be carried out.
        return Ruling(Variant.OFF, "nixl_telemetry_disabled"), None
    return ruling, None


def _abandoned(conn: Connection, pin: Pin, told: Registration, now: int) -> bool:
    """Whether nobody follows this pin: its own first engine gave up waiting for the answer, and runs the other variant.

    While no peer has been told anything, what runs can still become the pin; afterwards it would be a mixed generation.
    """
    mine = pin.pinned_by == told.registration_id and pin.held_until_us is None
    if told.running in {None, pin.variant} or not mine:
        return False
    peers = leases.live_registrations(conn, now, pin.deployment, pin.generation)
    return all(peer["id"] == told.registration_id or peer["local"] for peer in peers)


def _local(flag: Flag, local: Mapping[str, str], pin: Pin | None) -> Decision:
    """Explicit local settings win over all; the engine neither makes nor changes a pin."""
    return Decision(
        feature=flag.feature,
        flag=flag.key,
        variant=local["variant"],
        reason=f"local:{local['source']}",
        revision=flag.revision,
        epoch=pin.epoch if pin else 0,
        state=pin.state if pin else PinState.PINNED,
    )


def _off_for_safety(flag: Flag, pin: Pin) -> Decision:
    verbatim = pins.decision(flag, pin)
    return replace(verbatim, variant=Variant.OFF, reason="unsafe_under_pin", arm=None, comparison=Comparison.EXCLUDED)
