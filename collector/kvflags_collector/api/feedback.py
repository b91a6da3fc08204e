# SPDX-License-Identifier: Apache-2.0
"""Feedback on a flag: read what was measured and given; give, change and withdraw one's own."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from sqlalchemy import Connection

from kvflags_collector.api.context import Ctx
from kvflags_collector.api.once import Once
from kvflags_collector.api.paging import Listed, Paged
from kvflags_collector.api.schemas.feedback import EditFeedback, GiveFeedback
from kvflags_collector.api.schemas.signed import Change
from kvflags_collector.feedback import given
from kvflags_collector.feedback.signals import signals
from kvflags_collector.rollout import flags
from kvflags_collector.rollout.audit import Actor

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/flags/{key}/feedback", tags=["feedback"])


@router.get("")
def list_feedback(key: str, ctx: Ctx, paged: Paged) -> Listed:
    """What was measured and given about the flag, the newest first; also what was withdrawn."""
    with ctx.db.read() as conn:
        flag = flags.get(conn, key).key
        every = [((one["recorded_at"], one["id"]), {**one}) for one in signals(conn, flag, ctx.clock())]
        return paged(f"feedback {flag}", (str, str), lambda place: place.among(every, falling=True))


@router.post("", status_code=201)
def give(key: str, body: GiveFeedback, once: Once) -> dict[str, Any]:
    """Say how the flag did in a deployment. Engines, releases and arm are filled in from what is known."""
    said = body.said()

    def act(conn: Connection, now: int) -> dict[str, Any]:
        return given.give(conn, flags.get(conn, key).key, body.deployment, said, author=body.author, now=now)

    return once(act)


@router.get("/{name}")
def show(key: str, name: str, ctx: Ctx) -> dict[str, Any]:
    """One that was given, with every revision of it."""
    with ctx.db.read() as conn:
        return given.show(conn, key, name)


@router.put("/{name}")
def edit(key: str, name: str, body: EditFeedback, once: Once) -> dict[str, Any]:
    """Change what was said. What stood there before is kept."""
    return once(lambda conn, now: given.edit(conn, key, name, body.said(), **_by(body, once), now=now))


@router.post("/{name}/withdraw")
def withdraw(key: str, name: str, body: Change, once: Once) -> dict[str, Any]:
    """Take it back: it no longer counts, and stays readable. Repeating it changes nothing."""
    return once(lambda conn, now: given.withdraw(conn, key, name, **_by(body, once), now=now))


def _by(body: Change, once: Once) -> dict[str, Any]:
    return {"actor": Actor(author=body.author, reason=body.reason), "revision": body.revision or once.if_match}
