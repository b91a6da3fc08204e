# SPDX-License-Identifier: Apache-2.0
"""Flags: create, aim, stop, and every question about them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from sqlalchemy import Connection

from kvflags.errors import UsageError
from kvflags.flags import Flag, Step, default_steps
from kvflags_collector.api.context import Ctx
from kvflags_collector.api.once import Once, etag
from kvflags_collector.api.paging import Listed, Paged
from kvflags_collector.api.schemas.deployments import Decide
from kvflags_collector.api.schemas.fields import Id
from kvflags_collector.api.schemas.flags import Create, Extend, KillSwitch, Target, Undo
from kvflags_collector.api.schemas.ramps import Promote, RampPlan
from kvflags_collector.api.schemas.signed import Change
from kvflags_collector.feedback import report
from kvflags_collector.rollout import assign, audit, course, decide, explain, flags, ramp, status
from kvflags_collector.times import parsed

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/flags", tags=["flags"])


@router.get("")
def list_flags(ctx: Ctx, paged: Paged) -> Listed:
    """The flags that are not archived, by key."""
    with ctx.db.read() as conn:
        now = ctx.clock()
        return paged("flags", (str,), lambda place: [((one["key"],), one) for one in flags.listing(conn, now, place)])


@router.post("", status_code=201)
def create(body: Create, once: Once) -> dict[str, Any]:
    """A new flag, in draft. Every live generation is pinned off."""
    given = body.model_dump(exclude={"revision"})
    return once(lambda conn, now: flags.shown(conn, flags.create(conn, **given, now=now).key, now))


@router.get("/{key}")
def show(key: str, ctx: Ctx, response: Response) -> dict[str, Any]:
    """One flag with its last change. Its ETag is what `If-Match` takes."""
    with ctx.db.read() as conn:
        shown = flags.shown(conn, key, ctx.clock())
    response.headers["ETag"] = etag(shown["revision"])
    return shown


@router.put("/{key}/target")
def set_target(key: str, body: Target, once: Once) -> dict[str, Any]:
    """Aim at a percentage or a count, for all or for one backend. On a draft it starts the flag."""
    if body.inherit and (body.percent, body.count) != (None, None):
        raise UsageError("inherit takes no target of its own", hint="give one of percent, count and inherit")
    aim = None if body.inherit else flags.target(body.percent, body.count)
    return _changed(once, key, flags.set_target, aim, backend=body.backend, **_change(body, once))


@router.put("/{key}/kill-switch")
def kill_switch(key: str, body: KillSwitch, once: Once) -> dict[str, Any]:
    """Set or clear the kill switch. Setting it condemns every pin that is on."""
    return _changed(once, key, flags.kill_switch, on=body.on, **_change(body, once))


@router.post("/{key}/abort")
def abort(key: str, body: Change, once: Once) -> dict[str, Any]:
    """Stop the rollout. Every pin that is on is condemned. Repeating it changes nothing."""
    return _changed(once, key, flags.abort, **_change(body, once))


@router.post("/{key}/start")
def start(key: str, body: Change, once: Once) -> dict[str, Any]:
    """Start a draft, or start an aborted flag again. What was condemned stays condemned."""
    return _changed(once, key, flags.start, **_change(body, once))


@router.post("/{key}/pause")
def pause(key: str, body: Change, once: Once) -> dict[str, Any]:
    """Treat nobody new. What was dealt stays."""
    return _changed(once, key, course.pause, **_change(body, once))


@router.post("/{key}/resume")
def resume(key: str, body: Change, once: Once) -> dict[str, Any]:
    """Go on after a pause."""
    return _changed(once, key, course.resume, **_change(body, once))


@router.post("/{key}/undo")
def undo(key: str, body: Undo, once: Once) -> dict[str, Any]:
    """Aim again as before the last change of the aim, or as at a revision."""
    return _changed(once, key, course.undo, to=body.to, **_change(body, once))


@router.put("/{key}/expiry")
def extend(key: str, body: Extend, once: Once) -> dict[str, Any]:
    """Move the day on which the flag expires, or let it never expire (null)."""
    return _changed(once, key, flags.extend, body.expires, **_change(body, once))


@router.put("/{key}/ramp")
def plan_ramp(key: str, body: RampPlan, once: Once) -> dict[str, Any]:
    """Lay out a ramp, or take it away."""
    given = body.steps and tuple(
        Step(flags.target(one.percent, one.count), one.hold_s, one.sample, one.approval) for one in body.steps
    )

    def change(conn: Connection, key: str, **more: Any) -> Flag:  # noqa: ANN401 - author, reason, revision, time
        flag = flags.get(conn, key)
        size = sum(one.eligible and one.complete for one in assign.fleet(conn, flag, more["now"]))
        steps = given or default_steps(size, body.hold_s)
        return ramp.plan(conn, key, None if body.steps is None else steps, **more)

    return _changed(once, key, change, **_change(body, once))


@router.post("/{key}/promote")
def promote(key: str, body: Promote, once: Once) -> dict[str, Any]:
    """Enter the next step of the ramp now, or make the feature the default with a last holdback."""
    return _changed(once, key, course.make_default if body.default else course.promote, **_change(body, once))


@router.post("/{key}/decide")
def hand_out(key: str, body: Decide, once: Once) -> dict[str, Any]:
    """Pin a generation and hand its decision out, signed."""
    where = (body.deployment, body.generation)
    return once(lambda conn, now: decide.decide(conn, key, *where, now), deployment=body.deployment)


@router.get("/{key}/history")
def history(key: str, ctx: Ctx, paged: Paged) -> Listed:
    """Everything that was done under the flag, the newest first."""
    with ctx.db.read() as conn:
        flag = flags.get(conn, key).key
        return paged(f"history {flag}", (int, int, int), lambda place: audit.page(conn, flag, place))


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
def show_report(key: str, ctx: Ctx, as_of: datetime | None = None) -> dict[str, Any]:
    """The verdict on the flag and everything it rests on, schema kvflags.report/1.

    as_of: the report of a past time, the same whenever it is asked for.
    """
    return {**report.build(ctx.db, key, ctx.clock(), as_of_us=parsed(as_of) if as_of else None)}


def _change(body: Change, once: Once) -> dict[str, Any]:
    return {"author": body.author, "reason": body.reason, "revision": body.revision or once.if_match}


def _changed(once: Once, key: str, change: Callable[..., Flag], *args: Any, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - of the change
    """Make one change of a flag, and show what came of it."""
    return once(lambda conn, now: flags.shown(conn, change(conn, key, *args, **more, now=now).key, now))
