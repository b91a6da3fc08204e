# SPDX-License-Identifier: Apache-2.0
"""What an operator does to one deployment: opt it in or out, state facts of it, force or reopen a generation.

Each call is one entry of the audit log. None of them changes what a pinned generation is told.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select, update

from kvflags.errors import Conflict, ErrorCode, NotFound, UsageError
from kvflags.features import FEATURES
from kvflags.flags import Comparison, Flag, Isolation, Phase, RuleClass, Ruling, Variant
from kvflags_collector.rollout import audit, declared, flags, pins, standing
from kvflags_collector.rollout.audit import Actor
from kvflags_collector.rollout.declared import Declaration
from kvflags_collector.rollout.pins import Pin
from kvflags_collector.store import control_tables as tables

__all__ = ["declare", "force", "opt", "reopen"]


def opt(conn: Connection, key: str, deployment: str, opted: str | None, *, actor: Actor, now: int) -> bool:
    """Opt a deployment `in` or `out` of a flag, or take that back (None); whether anything changed. Writes.

    Opting out condemns what is on. Either way the deployment chose for itself, so it leaves the comparison.
    """
    flag = flags.get(conn, key)
    _known(conn, deployment)
    if standing.opted(conn, key, deployment) == opted:
        return False
    _store_opt(conn, key, deployment, opted, now)
    a = tables.assignments
    chosen: dict[str, Any] = {"comparison": Comparison.EXCLUDED.value}
    if opted == "in":
        chosen["ever_treated"] = True
    conn.execute(update(a).where(a.c.flag == key, a.c.deployment == deployment).values(**chosen))
    if opted == "out":
        for pin in pins.open_pins(conn, tables.pins.c.flag == flag.key, tables.pins.c.deployment == deployment):
            pins.condemn(conn, pin, "opt_out")
    audit.record(conn, actor, "opt", flag=key, deployment=deployment, now=now, opted=opted)
    return True


def declare(conn: Connection, deployment: str, said: Declaration, *, actor: Actor, now: int) -> Declaration:
    """State what is true of a deployment, also of one that never ran. Replaces what was stated before. Writes."""
    for number, role in ((said.prefill, "prefill"), (said.decode, "decode")):
        if number < 1:
            raise UsageError(f"a deployment has at least one {role} engine", hint=f"--{role} 1 or more")
    if said.isolation not in {None, *Isolation}:
        raise UsageError(f"there is no isolation {said.isolation!r}", hint=f"one of {', '.join(Isolation)}")
    _known_backend(said.backend)
    d = tables.deployments
    if conn.scalar(select(d.c.id).where(d.c.id == deployment)) is None:
        conn.execute(d.insert().values(id=deployment, first_seen_us=now, last_seen_us=now))
    if said != declared.of(conn, deployment):
        t = tables.declarations
        conn.execute(t.delete().where(t.c.deployment == deployment))
        conn.execute(t.insert().values(deployment=deployment, document=said.to_json(), declared_us=now))
        audit.record(conn, actor, "declare", deployment=deployment, now=now, declaration=said.to_json())
    return said


def force(conn: Connection, key: str, deployment: str, generation: str, variant: str, *, actor: Actor, now: int) -> Pin:
    """Pin an open generation to a variant by hand, past gates and observation; it is not compared. Writes.

    Conflict: it is pinned already, or what forbids `on` for every generation (kill switch, phase, opt-out, safe mode,
    a rule of class unsafe) stands against it.
    """
    flag = flags.get(conn, key)
    _known(conn, deployment)
    if pin := pins.open_pin(conn, key, deployment, generation):
        hint = "name a generation that has not started, or `kvflags deployments reopen` it first"
        raise Conflict(f"{deployment} {generation} is pinned {pin.variant}", hint=hint, code=ErrorCode.PINNED)
    if variant == Variant.ON:
        _forbidden(conn, flag, deployment, now)
    ruling = Ruling(Variant(variant), "forced")
    pin = pins.make(conn, flag, deployment, generation, ruling, by="force", now=now)
    # Nobody lives in it yet, so that it would be closed at once: it waits for its first engine as a decision would.
    pins.hold(conn, pin, now + _WAITS_US)
    detail = {"variant": variant, "epoch": pin.epoch}
    audit.record(conn, actor, "force", flag=key, deployment=deployment, generation=generation, now=now, **detail)
    return pin


def reopen(conn: Connection, key: str, deployment: str, generation: str, *, actor: Actor, now: int) -> Pin:
    """Close an epoch while its engines live: the next to register is decided anew. Gives back what was closed. Writes.

    Until the engines of the old epoch are gone, the two may differ: that time is measured as `transition`.
    """
    flags.get(conn, key)
    pin = pins.open_pin(conn, key, deployment, generation)
    if pin is None:
        message = f"{deployment} {generation} has no pin under {key!r}"
        raise NotFound(message, hint=f"see `kvflags rollout status {key}`", code=ErrorCode.UNKNOWN_DEPLOYMENT)
    pins.close(conn, pin, now)
    detail = {"epoch": pin.epoch, "variant": pin.variant}
    audit.record(conn, actor, "reopen", flag=key, deployment=deployment, generation=generation, now=now, **detail)
    return pin


# A forced generation waits a day for its first engine: longer than any release takes, and not for ever.
_WAITS_US = 86_400 * 1_000_000


def _store_opt(conn: Connection, key: str, deployment: str, opted: str | None, now: int) -> None:
    t = tables.opts
    conn.execute(t.delete().where(t.c.flag == key, t.c.deployment == deployment))
    if opted is not None:
        conn.execute(t.insert().values(flag=key, deployment=deployment, opted=opted, opted_us=now))


def _forbidden(conn: Connection, flag: Flag, deployment: str, now: int) -> None:
    stand = standing.standing(conn, flag, deployment, now)
    against = {
        "the kill switch is set": flag.kill_switch,
        f"the flag is {flag.phase}": flag.phase in {Phase.DRAFT, Phase.ABORTED},
        "it is opted out": stand.opted == "out",
        "it is in safe mode": stand.safe_mode,
        **{refusal.says: True for refusal in stand.refusals if refusal.rule_class == RuleClass.UNSAFE},
    }
    if because := [says for says, stands in against.items() if stands]:
        hint = f"see `kvflags explain {flag.key} --deployment {deployment}`"
        raise Conflict(
            f"{deployment} cannot be forced on: {'; '.join(because)}", hint=hint, code=ErrorCode.NOT_ELIGIBLE
        )


def _known(conn: Connection, deployment: str) -> None:
    if conn.scalar(select(tables.deployments.c.id).where(tables.deployments.c.id == deployment)) is None:
        hint = "see `kvflags deployments list`; `kvflags deployments declare` makes one known before it runs"
        raise NotFound(f"there is no deployment {deployment!r}", hint=hint, code=ErrorCode.UNKNOWN_DEPLOYMENT)


def _known_backend(backend: str | None) -> None:
    known = {name for feature in FEATURES.values() for name in feature.backends}
    if backend is not None and backend not in known:
        hint = f"backends: {', '.join(sorted(known))}"
        raise UsageError(f"there is no attention backend {backend!r}", hint=hint, code=ErrorCode.UNKNOWN_BACKEND)
