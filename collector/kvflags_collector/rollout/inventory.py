# SPDX-License-Identifier: Apache-2.0
"""Lists of what is there: engines and deployments, as the API shows them. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Column, Connection, RowMapping, Table, func, select, true

from kvflags.errors import ErrorCode, NotFound
from kvflags.flags import Flag
from kvflags_collector.rollout import declared, flags, gate, leases, observe, pins
from kvflags_collector.rollout.declared import NOTHING, Declaration
from kvflags_collector.rollout.pins import Pin
from kvflags_collector.rollout.standing import assignment, opted, unobserved
from kvflags_collector.store import control_tables as tables
from kvflags_collector.store.places import WHOLE, Keyed, Place
from kvflags_collector.times import rfc3339

__all__ = ["deployment", "deployments", "engines", "page_of_engines"]

# The newest are what anybody asks for who asks for no page.
_LIMIT = 1000


def engines(conn: Connection, now: int, deployment: str | None = None) -> list[dict[str, Any]]:
    """Engines that heartbeat or did, and registrations that never yet did (`engine_id` null); the live ones first.

    Of one deployment, or of all.
    """
    e, r = tables.engines, tables.registrations
    registrations = {row["id"]: row for row in _newest(conn, r, r.c.registered_us, deployment)}
    seen = _newest(conn, e, e.c.last_us, deployment)
    items = [_engine(row, registrations.get(row["registration"]), now) for row in seen]
    heard = {row["registration"] for row in seen}
    items += [_starting(row, now) for name, row in registrations.items() if name not in heard]
    return sorted(items, key=lambda item: item["state"] == "ended")


def deployments(conn: Connection, now: int, place: Place = WHOLE, prefix: str = "") -> list[dict[str, Any]]:
    """Deployments by name, from a place on; last, one with `deployment` null for engines without identity, if any."""
    living = leases.head_count(conn, now)
    known = flags.by_feature(conn).values()
    d = tables.deployments
    query = place.rising(select(d).where(d.c.id.startswith(prefix, autoescape=True)), d.c.id)
    rows = conn.execute(query).mappings().all()
    in_force = pins.open_pins(conn, tables.pins.c.deployment.in_([row["id"] for row in rows]))
    stated = declared.everywhere(conn)
    items = [
        _deployment(conn, row, stated.get(row["id"], NOTHING), known, in_force, now) | _living(living, row["id"])
        for row in rows
    ]
    nameless = _living(living, None)
    at_the_end = not prefix and (place.limit is None or len(items) < place.limit)
    return [*items, {"deployment": None} | nameless] if at_the_end and nameless["live_engines"] else items


def deployment(conn: Connection, name: str, now: int) -> dict[str, Any]:
    """One of `deployments`. NotFound (`unknown_deployment`)."""
    row = conn.execute(select(tables.deployments).where(tables.deployments.c.id == name)).mappings().first()
    if row is None:
        message, hint = f"there is no deployment {name!r}", "see `kvflags deployments list`"
        raise NotFound(message, hint=hint, code=ErrorCode.UNKNOWN_DEPLOYMENT)
    in_force = pins.open_pins(conn, tables.pins.c.deployment == name)
    known = flags.by_feature(conn).values()
    found = _deployment(conn, row, declared.of(conn, name), known, in_force, now)
    return found | _living(leases.head_count(conn, now), name)


def _newest(conn: Connection, table: Table, by: Column[int], deployment: str | None) -> list[RowMapping]:
    mine = true() if deployment is None else table.c.deployment == deployment
    return list(conn.execute(select(table).where(mine).order_by(by.desc()).limit(_LIMIT)).mappings())


def _engine(row: RowMapping, registration: RowMapping | None, now: int) -> dict[str, Any]:
    return _common(row, registration, now) | {
        "engine_id": row["engine_id"],
        "registration_id": row["registration"],
        "state": "running" if row["lease_until_us"] > now else "ended",
        "layout": {name: row[name] for name in ("requested", "resolved", "effective", "regions", "layers")},
        "exercised": {"ok": row["ok"], "errors": row["errors"]},
        "dropped": {"spans": row["dropped_spans"], "events": row["dropped_events"]},
        "ranks": row["ranks"],
        "skew_ms": row["skew_ms"],
        "first_seen_at": rfc3339(row["first_us"]),
        "last_seen_at": rfc3339(row["last_us"]),
        "problems": sorted({*row["problems"], *(registration["problems"] if registration else [])}),
    }


def _starting(row: RowMapping, now: int) -> dict[str, Any]:
    nothing: dict[str, Any] = {"requested": None, "resolved": None, "effective": None, "regions": None, "layers": None}
    return _common(row, row, now) | {
        "engine_id": None,
        "registration_id": row["id"],
        "state": "starting" if row["lease_until_us"] > now else "ended",
        "layout": nothing,
        "exercised": {"ok": 0, "errors": 0},
        "dropped": {"spans": 0, "events": 0},
        "ranks": None,
        "skew_ms": None,
        "first_seen_at": rfc3339(row["registered_us"]),
        "last_seen_at": rfc3339(row["registered_us"]),
        "problems": sorted(row["problems"]),
    }


def _common(row: RowMapping, registration: RowMapping | None, now: int) -> dict[str, Any]:
    return {
        "deployment": row["deployment"],
        "generation": row["generation"],
        "role": row["role"],
        "live": row["lease_until_us"] > now,
        "lease_until": rfc3339(row["lease_until_us"]),
        "facts": row["facts"],
        "kvflags": registration["kvflags"] if registration else None,
        "local": registration["local"] if registration else None,
    }


def _living(living: dict[tuple[str | None, str], int], deployment: str | None) -> dict[str, Any]:
    mine = {generation: number for (name, generation), number in living.items() if name == deployment}
    return {"live_engines": sum(mine.values()), "live_generations": dict(sorted(mine.items()))}


def _deployment(  # noqa: PLR0917 (everything that is known of one deployment)
    conn: Connection, row: RowMapping, stated: Declaration, known: Iterable[Flag], in_force: Iterable[Pin], now: int
) -> dict[str, Any]:
    seen = observe.seen(conn, row, stated, now)
    return {
        "deployment": row["id"],
        "first_seen_at": rfc3339(row["first_seen_us"]),
        "last_seen_at": rfc3339(row["last_seen_us"]),
        "observed_at": rfc3339(row["observed_us"]),
        "observed_generation": row["observed_generation"],
        "baseline_at": rfc3339(row["baseline_us"]),
        "backends": sorted({facts.backend for each in seen.values() for facts in each if facts.backend}),
        "roles": sorted(seen),
        "declared": stated.to_json() if stated != NOTHING else None,
        "flags": [_under(conn, flag, row, stated, in_force, now) for flag in known],
    }


def _under(  # noqa: PLR0917 (as above, under one flag)
    conn: Connection, flag: Flag, row: RowMapping, stated: Declaration, in_force: Iterable[Pin], now: int
) -> dict[str, Any]:
    refused = gate.refusals(flag, observe.seen(conn, row, stated, now), stated)
    waiting = unobserved(conn, flag, row, stated, now)
    dealt = assignment(conn, flag.key, row["id"])
    mine = [pin for pin in in_force if pin.deployment == row["id"] and pin.flag == flag.key]
    return {
        "flag": flag.key,
        "eligible": not refused and not waiting,
        "refusals": [{"code": refusal.code, "says": refusal.says} for refusal in refused],
        "waiting_for": waiting or None,
        "opted": opted(conn, flag.key, row["id"]),
        "arm": dealt.arm if dealt else None,
        "comparison": dealt.comparison if dealt else None,
        "pins": [
            {"generation": p.generation, "epoch": p.epoch, "variant": p.variant, "state": p.state, "reason": p.reason}
            for p in mine
        ],
    }


def page_of_engines(conn: Connection, now: int, place: Place, *, live: bool) -> list[Keyed]:
    """Engines as in `engines`, from a place on, the last that registered first. live: only those that are."""
    r, e = tables.registrations, tables.engines
    # Where a front end that starts stands, its engines stand as well once they heartbeat: no page misses them.
    key = (r.c.registered_us, r.c.id, func.coalesce(e.c.engine_id, ""))
    query = select(*key).select_from(r.outerjoin(e, e.c.registration == r.c.id))
    if live:
        query = query.where(func.coalesce(e.c.lease_until_us, r.c.lease_until_us) > now)
    keys = [tuple(row) for row in conn.execute(place.falling(query, *key))]
    whose = {name for _, name, _ in keys}
    registrations = {row["id"]: row for row in conn.execute(select(r).where(r.c.id.in_(whose))).mappings()}
    heard = conn.execute(select(e).where(e.c.registration.in_(whose))).mappings()
    seen = {(row["registration"], row["engine_id"]): row for row in heard}
    return [(one, _listed(seen.get(one[1:]), registrations[one[1]], now)) for one in keys]


def _listed(row: RowMapping | None, registration: RowMapping, now: int) -> dict[str, Any]:
    return _starting(registration, now) if row is None else _engine(row, registration, now)
