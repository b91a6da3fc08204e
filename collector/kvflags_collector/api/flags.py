# SPDX-License-Identifier: Apache-2.0
"""Flags: create, aim, stop, and every question about them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from kvflags.errors import UsageError
from kvflags_collector.api.context import Ctx
from kvflags_collector.api.schemas import Change, Create, Decide, Id, KillSwitch, Target
from kvflags_collector.feedback import report
from kvflags_collector.rollout import alarms, decide, explain, flags, status

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/flags", tags=["flags"])


@router.get("")
def list_flags(ctx: Ctx) -> dict[str, Any]:
    """All flags that are not archived."""
    with ctx.db.read() as conn:
        return {"items": flags.listing(conn)}


@router.post("", status_code=201)
def create(body: Create, ctx: Ctx) -> dict[str, Any]:
    """A new flag, in draft. Every live generation is pinned off."""
    with ctx.db.write() as conn:
        flags.create(conn, **body.model_dump(exclude={"revision"}), now=ctx.clock())
        return flags.shown(conn, body.key)


@router.get("/{key}")
def show(key: str, ctx: Ctx) -> dict[str, Any]:
    """One flag with its last change."""
    with ctx.db.read() as conn:
        return flags.shown(conn, key)


@router.put("/{key}/target")
def set_target(key: str, body: Target, ctx: Ctx) -> dict[str, Any]:
    """Aim at a percentage or a count, for all or for one backend. On a draft it starts the flag."""
    if body.inherit and (body.percent, body.count) != (None, None):
        raise UsageError("inherit takes no target of its own", hint="give one of percent, count and inherit")
    aim = None if body.inherit else flags.target(body.percent, body.count)
    with ctx.db.write() as conn:
        flags.set_target(conn, key, aim, backend=body.backend, **_change(body), now=ctx.clock())
        return flags.shown(conn, key)


@router.put("/{key}/kill-switch")
def kill_switch(key: str, body: KillSwitch, ctx: Ctx) -> dict[str, Any]:
    """Set or clear the kill switch. Setting it condemns every pin that is on."""
    with ctx.db.write() as conn:
        flags.kill_switch(conn, key, on=body.on, **_change(body), now=ctx.clock())
        return flags.shown(conn, key)


@router.post("/{key}/abort")
def abort(key: str, body: Change, ctx: Ctx) -> dict[str, Any]:
    """Stop the rollout. Every pin that is on is condemned. Repeating it changes nothing."""
    with ctx.db.write() as conn:
        flags.abort(conn, key, **_change(body), now=ctx.clock())
        return flags.shown(conn, key)


@router.post("/{key}/start")
def start(key: str, body: Change, ctx: Ctx) -> dict[str, Any]:
    """Start a draft, or start an aborted flag again. What was condemned stays condemned."""
    with ctx.db.write() as conn:
        flags.start(conn, key, **_change(body), now=ctx.clock())
        return flags.shown(conn, key)


@router.post("/{key}/decide")
def hand_out(key: str, body: Decide, ctx: Ctx) -> dict[str, Any]:
    """Pin a generation and hand its decision out, signed."""
    with ctx.db.write() as conn:
        return decide.decide(conn, key, body.deployment, body.generation, ctx.clock())


@router.get("/{key}/status")
def show_status(key: str, ctx: Ctx) -> dict[str, Any]:
    """The target beside what is real."""
    with ctx.db.read() as conn:
        return status.status(conn, key, ctx.clock())


@router.get("/{key}/explain")
def show_explain(
    key: str, deployment: Annotated[Id, Query()], ctx: Ctx, generation: Id | None = None
) -> dict[str, Any]:
    """Why a deployment is told what it is told."""
    with ctx.db.read() as conn:
        return explain.explain(conn, key, deployment, ctx.clock(), generation)


@router.get("/{key}/report")
def show_report(key: str, ctx: Ctx) -> dict[str, Any]:
    """The verdict on the flag and everything it rests on, schema kvflags.report/1."""
    return report.build(ctx.db, key, ctx.clock())


@router.get("/{key}/feedback")
def feedback(key: str, ctx: Ctx) -> dict[str, Any]:
    """What was measured and given about the flag."""
    with ctx.db.read() as conn:
        return {"items": alarms.feedback(conn, flags.get(conn, key).key)}


def _change(body: Change) -> dict[str, Any]:
    return {"author": body.author, "reason": body.reason, "revision": body.revision}
