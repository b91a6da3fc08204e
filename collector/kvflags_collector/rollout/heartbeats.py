# SPDX-License-Identifier: Apache-2.0
"""Heartbeats: an engine lives, this is what it turned out to be, and this is what it should know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, RowMapping, bindparam, select, update

from kvflags.errors import Conflict, ErrorCode, NotFound
from kvflags.features import FEATURES
from kvflags.flags import Facts, Flag, PinState
from kvflags_collector.rollout import flags, leases, mixed, observe, pins
from kvflags_collector.rollout.leases import Timing
from kvflags_collector.rollout.messages import Heartbeat
from kvflags_collector.rollout.standing import unsafe
from kvflags_collector.store import control_tables as tables
from kvflags_collector.store import presence, skew
from kvflags_collector.store.spans import mark_minutes
from kvflags_collector.times import SECOND, rfc3339

__all__ = ["heartbeat"]

# Built once: building a statement takes longer than running it, and these run for each engine every 30 s.
_R, _E, _D = tables.registrations.c, tables.engines.c, tables.deployments.c
_REGISTRATION = select(tables.registrations).where(_R.id == bindparam("registration"))
_TWIN = (
    select(_E.registration, _E.deployment)
    .where(
        _E.engine_id == bindparam("engine_id"),
        _E.registration != bindparam("registration"),
        _E.lease_until_us > bindparam("now"),
        _E.last_us > bindparam("registered_us"),
    )
    .limit(1)
)
_MINE = (_E.registration == bindparam("its_registration"), _E.engine_id == bindparam("its_engine"))
_ENGINE = select(tables.engines).where(*_MINE)
_RENEW = update(tables.engines).where(*_MINE)
_SEEN = update(tables.deployments).where(_D.id == bindparam("deployment"))

# A busy engine moves something between any two heartbeats; looking at all its peers each time was half of their cost.
_LOOK_AGAIN_US = 300 * SECOND

_Engine = Mapping[str, Any]


def heartbeat(
    conn: Connection, registration_id: str, body: Mapping[str, Any], now: int, timing: Timing | None = None
) -> dict[str, Any]:
    """Renew the leases and take in what is new; the answer of api.md. Writes.

    NotFound (`unknown_registration`): register again, saying what is running.
    """
    timing, beat = timing or Timing(), Heartbeat.from_json(body)
    leases.bridge(conn, timing, now)
    known = flags.by_feature(conn)
    registration = _registration(conn, registration_id, known.values(), now)
    _refuse_duplicate(conn, registration, beat.engine_id, now)
    before, engine = _take_in(conn, registration, beat, timing, now)
    expected = Facts.from_json(engine["facts"]).dp
    leases.renew(conn, registration_id, expected=expected, until=engine["lease_until_us"])
    if registration["deployment"] is None:
        return _answer(known.values(), [], {"replace": 0, "live": 0}, now)
    return _identified(conn, known, before, engine, now)


def _registration(conn: Connection, registration_id: str, known: Iterable[Flag], now: int) -> RowMapping:
    row = conn.execute(_REGISTRATION, {"registration": registration_id}).mappings().first()
    if row is None or _outlived(conn, row, known, now):
        raise NotFound(
            "this registration is not known, or its epoch was closed",
            hint="register again, saying what is running",
            code=ErrorCode.UNKNOWN_REGISTRATION,
        )
    return row


def _refuse_duplicate(conn: Connection, registration: RowMapping, engine_id: str, now: int) -> None:
    """Two processes with one engine id: what one measures would be taken for the other's.

    An engine that was restarted under its id falls silent before its successor registers, which tells the two apart.
    """
    asked = {"engine_id": engine_id, "registration": registration["id"], "now": now}
    if twin := conn.execute(_TWIN, asked | {"registered_us": registration["registered_us"]}).first():
        raise Conflict(
            f"the engine id {engine_id!r} is in use by another process of {twin.deployment or 'an unknown deployment'}",
            hint="give each engine its own kv_transfer_config.engine_id",
            code=ErrorCode.DUPLICATE_IDENTITY,
        )


def _outlived(conn: Connection, registration: RowMapping, known: Iterable[Flag], now: int) -> bool:
    """Whether the lease ended and the epoch with it: then another decision may hold, or none, and it must ask again.

    While peers kept the epoch open, a late engine simply goes on under it.
    """
    ended = registration["lease_until_us"]
    if registration["deployment"] is None or registration["local"] or ended > now:
        return False
    where = (registration["deployment"], registration["generation"])
    held = (pins.open_pin(conn, flag.key, *where) for flag in known)
    return any(pin is None or pin.pinned_us > ended for pin in held)


def _take_in(
    conn: Connection, registration: RowMapping, beat: Heartbeat, timing: Timing, now: int
) -> tuple[_Engine | None, _Engine]:
    """Store the heartbeat with the lease that it renews; gives the engine's row as it was (None: new) and as it is."""
    mine = {"its_registration": registration["id"], "its_engine": beat.engine_id}
    row = conn.execute(_ENGINE, mine).mappings().first()
    before: _Engine | None = None if row is None else dict(row)
    earlier = Facts.from_json((before or registration)["facts"])
    values = beat.columns | {
        "facts": earlier.updated(beat.facts).to_json(),
        "skew_ms": _skew_ms(before, beat, now),
        "last_us": now,
        "lease_until_us": now + timing.running_us,
    }
    if before is None:
        identity = {"registration": registration["id"], "engine_id": beat.engine_id, "first_us": now}
        inherited = {name: registration[name] for name in ("deployment", "generation", "role")}
        engine: _Engine = identity | inherited | values
        conn.execute(tables.engines.insert(), engine)
    else:
        conn.execute(_RENEW, mine | values)
        engine = {**before, **values}
    _keep_time(conn, engine, new=before is None, now=now)
    return before, engine


def _skew_ms(before: _Engine | None, beat: Heartbeat, now: int) -> float | None:
    """How far the engine's clock is ahead; as it was where this heartbeat does not tell."""
    known = before["skew_ms"] if before else None
    if beat.clock_us is None:
        return known
    return skew.estimate(None if known is None else round(known * 1000), beat.clock_us, now) / 1000


def _keep_time(conn: Connection, engine: _Engine, *, new: bool, now: int) -> None:
    """Note that the engine was alive, and how wrong its clock is; a change has the last minutes rolled again."""
    deployment, engine_id = engine["deployment"] or "", engine["engine_id"]
    presence.note(conn, deployment, engine["generation"], engine_id, new=new, now_us=now)
    if engine["skew_ms"] is not None:
        minutes = skew.note(conn, engine_id, deployment, round(engine["skew_ms"] * 1000), now)
        if minutes:
            mark_minutes(conn, [(minute, deployment) for minute in minutes], [])


def _identified(
    conn: Connection, known: Mapping[str, Flag], before: _Engine | None, engine: _Engine, now: int
) -> dict[str, Any]:
    deployment, generation = engine["deployment"], engine["generation"]
    conn.execute(_SEEN, {"deployment": deployment, "last_seen_us": now})
    new = before is None or before["lease_until_us"] <= now
    if new or _differs(before, engine, "facts"):
        _condemn_unsafe(conn, known, engine)
    if new or _differs(before, engine, "facts") or _moves(before, engine):
        observe.observe(conn, deployment, observe.quiet(known.values()), now)
    if new or _differs(before, engine, "resolved"):
        mixed.look(conn, deployment, generation, now)
    held = [pins.open_pin(conn, flag.key, deployment, generation) for flag in known.values()]
    condemned = [pin.flag for pin in held if pin and pin.state == PinState.CONDEMNED]
    live = leases.head_count(conn, now, deployment).get((deployment, generation), 0)
    return _answer(known.values(), condemned, {"replace": live if condemned else 0, "live": live}, now)


def _differs(before: _Engine | None, engine: _Engine, column: str) -> bool:
    return before is None or before[column] != engine[column]


def _moves(before: _Engine | None, engine: _Engine) -> bool:
    """Whether it has transferred for the first time, or first in these minutes: then those that left are forgotten."""
    if before is None or not engine["ok"] or before["ok"] == engine["ok"]:
        return False
    return not before["ok"] or bool(before["last_us"] // _LOOK_AGAIN_US != engine["last_us"] // _LOOK_AGAIN_US)


def _condemn_unsafe(conn: Connection, known: Mapping[str, Flag], engine: _Engine) -> None:
    """Facts that only the worker knows can show that what runs is unsafe: it cannot stop, but it must be replaced."""
    facts = Facts.from_json(engine["facts"])
    for flag in known.values():
        pin = pins.open_pin(conn, flag.key, engine["deployment"], engine["generation"])
        if pin is not None and unsafe(FEATURES[flag.feature], facts):
            pins.condemn(conn, pin, "unsafe_under_pin")


def _answer(known: Iterable[Flag], condemned: list[str], pending: dict[str, int], now: int) -> dict[str, Any]:
    revision = max((flag.revision for flag in known), default=0)
    return {"revision": revision, "condemned": condemned, "pending": pending, "server_time": rfc3339(now)}
