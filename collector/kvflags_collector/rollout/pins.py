# SPDX-License-Identifier: Apache-2.0
"""The ledger's rows: what a generation was told in one epoch, verbatim until the epoch closes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, bindparam, exists, func, or_, select, update

from kvflags.flags import Comparison, Decision, Flag, PinState, Ruling, Variant
from kvflags_collector.rollout import leases
from kvflags_collector.store.control_tables import alarms, pins, registrations

__all__ = [
    "Pin",
    "close",
    "close_ended",
    "condemn",
    "condemn_flag",
    "decision",
    "exclude",
    "hold",
    "last_epoch",
    "make",
    "open_pin",
    "open_pins",
    "pin_live_off",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One epoch of one generation under one flag; the fields are the columns of `pins`."""

    id: int
    flag: str
    deployment: str
    generation: str
    epoch: int
    variant: str
    arm: str | None
    comparison: str
    reason: str
    revision: int
    bucket: int | None
    state: str
    pinned_by: str
    pinned_us: int
    condemned_reason: str | None
    closed_us: int | None
    excluded_because: str | None
    held_until_us: int | None


def decision(flag: Flag, pin: Pin, signed: str | None = None) -> Decision:
    """What an engine is told of this pin."""
    return Decision(
        feature=flag.feature,
        flag=flag.key,
        variant=pin.variant,
        reason=pin.reason,
        arm=pin.arm,
        comparison=pin.comparison,
        revision=pin.revision,
        bucket=pin.bucket,
        epoch=pin.epoch,
        state=pin.state,
        signed=signed,
    )


# Built once: every heartbeat and every registration asks it, some more than once.
_WHERE = [pins.c[name] == bindparam(name) for name in ("flag", "deployment", "generation")]
_OPEN = select(pins).where(pins.c.closed_us.is_(None), *_WHERE)
_LAST_EPOCH = select(func.max(pins.c.epoch)).where(*_WHERE)
_ENDED = select(pins).where(
    pins.c.closed_us.is_(None),
    ~exists().where(
        registrations.c.deployment == pins.c.deployment,
        registrations.c.generation == pins.c.generation,
        registrations.c.lease_until_us > bindparam("now"),
    ),
    or_(pins.c.held_until_us.is_(None), pins.c.held_until_us <= bindparam("now")),
)
_ENDED_ALL, _ENDED_OF = (query.order_by(pins.c.id) for query in (_ENDED, _ENDED.where(_WHERE[1])))


def open_pin(conn: Connection, flag: str, deployment: str, generation: str) -> Pin | None:
    """The pin in force (pinned or condemned), None while the generation is open."""
    row = conn.execute(_OPEN, {"flag": flag, "deployment": deployment, "generation": generation}).mappings().first()
    return Pin(**row) if row else None


def open_pins(conn: Connection, *where: ColumnElement[bool]) -> list[Pin]:
    """All pins in force that meet the conditions, the oldest first."""
    query = select(pins).where(pins.c.closed_us.is_(None), *where).order_by(pins.c.id)
    return [Pin(**row) for row in conn.execute(query).mappings()]


def last_epoch(conn: Connection, flag: str, deployment: str, generation: str) -> int:
    """The highest epoch this generation ever had under the flag; 0 for none."""
    return conn.scalar(_LAST_EPOCH, {"flag": flag, "deployment": deployment, "generation": generation}) or 0


def make(
    conn: Connection,
    flag: Flag,
    deployment: str,
    generation: str,
    ruling: Ruling,
    *,
    by: str,
    now: int,
    epoch: int | None = None,
    held_until: int | None = None,
) -> Pin:
    """Pin a ruling as the next epoch (or as `epoch`, where a handed-out decision names a later one)."""
    last = last_epoch(conn, flag.key, deployment, generation)
    row = {
        "flag": flag.key,
        "deployment": deployment,
        "generation": generation,
        "epoch": max(last + 1, epoch or 0),
        "variant": ruling.variant.value,
        "arm": ruling.arm.value if ruling.arm else None,
        "comparison": ruling.comparison.value,
        "reason": ruling.reason,
        "revision": flag.revision,
        "bucket": ruling.bucket,
        "state": PinState.PINNED.value,
        "pinned_by": by,
        "pinned_us": now,
        "held_until_us": held_until,
    }
    conn.execute(pins.insert(), row)
    made = open_pin(conn, flag.key, deployment, generation)
    assert made is not None, "it was inserted in this transaction"
    return made


def hold(conn: Connection, pin: Pin, until: int) -> None:
    """Keep the epoch open at least until then: a decision was handed out that engines may follow without asking."""
    conn.execute(update(pins).where(pins.c.id == pin.id).values(held_until_us=max(until, pin.held_until_us or 0)))


def pin_live_off(conn: Connection, flag: Flag, now: int) -> None:
    """A new flag finds generations that run plain vLLM: what joins them must do the same."""
    living = [row for row in leases.live_registrations(conn, now) if row["deployment"] is not None]
    for deployment, generation in sorted({(row["deployment"], row["generation"]) for row in living}):
        make(conn, flag, deployment, generation, Ruling(Variant.OFF, "flag_created"), by="flag_created", now=now)
    for row in living:
        if row["local"]:
            exclude(conn, row["deployment"], row["generation"], "forced")


def condemn(conn: Connection, pin: Pin, reason: str) -> Pin:
    """Condemn a pin `on`: its engines are to be replaced, and whoever joins still agrees with them."""
    return _condemn(conn, reason, pins.c.id == pin.id)[0] if pin.variant == Variant.ON else pin


def condemn_flag(conn: Connection, flag: str, reason: str) -> list[Pin]:
    """Condemn every pin `on` of a flag; gives them back as they now are."""
    return _condemn(conn, reason, pins.c.flag == flag)


def _condemn(conn: Connection, reason: str, which: ColumnElement[bool]) -> list[Pin]:
    on = and_(which, pins.c.variant == Variant.ON, pins.c.closed_us.is_(None))
    fresh = and_(on, pins.c.state == PinState.PINNED)
    conn.execute(update(pins).where(fresh).values(state=PinState.CONDEMNED.value, condemned_reason=reason))
    return open_pins(conn, on)


def exclude(conn: Connection, deployment: str, generation: str, because: str) -> None:
    """Take a generation out of the comparison for as long as it lives; the first reason stays."""
    mine = and_(pins.c.deployment == deployment, pins.c.generation == generation, pins.c.closed_us.is_(None))
    fresh = and_(mine, pins.c.excluded_because.is_(None))
    values = {"comparison": Comparison.EXCLUDED.value, "excluded_because": because}
    conn.execute(update(pins).where(fresh).values(**values))


def close_ended(conn: Connection, now: int, deployment: str | None = None) -> Sequence[Pin]:
    """Close the epochs whose last lease ended (of one deployment where given), with their alarms."""
    query, given = (
        (_ENDED_ALL, {"now": now}) if deployment is None else (_ENDED_OF, {"now": now, "deployment": deployment})
    )
    over = [Pin(**row) for row in conn.execute(query, given).mappings()]
    for pin in over:
        close(conn, pin, now)
        theirs = and_(alarms.c.deployment == pin.deployment, alarms.c.generation == pin.generation)
        conn.execute(update(alarms).where(theirs, alarms.c.ended_us.is_(None)).values(ended_us=now, last_us=now))
    return over


def close(conn: Connection, pin: Pin, now: int) -> None:
    """End one epoch: the generation is open again. Its alarms stand for as long as its engines live and differ."""
    conn.execute(update(pins).where(pins.c.id == pin.id).values(state=PinState.CLOSED.value, closed_us=now))
