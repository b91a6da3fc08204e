# SPDX-License-Identifier: Apache-2.0
"""What an operator does to one deployment, and what has to be replaced because of it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from kvflags_collector.api.context import Ctx
from kvflags_collector.api.once import Once
from kvflags_collector.api.paging import Listed, Paged
from kvflags_collector.api.schemas.deployments import Declare, Force, Opt, Reopen
from kvflags_collector.api.schemas.signed import Change
from kvflags_collector.rollout import flags, steer, treated
from kvflags_collector.rollout.audit import Actor
from kvflags_collector.rollout.declared import Declaration
from kvflags_collector.rollout.explain import shown

__all__ = ["router"]

router = APIRouter(prefix="/api/v1", tags=["deployments"])


@router.put("/declarations")
def declare(body: Declare, once: Once) -> dict[str, Any]:
    """State what is true of a deployment, also before it runs."""
    said = Declaration(**body.model_dump(exclude={"deployment", "author", "reason", "revision"}))
    return once(
        lambda conn, now: {
            "deployment": body.deployment,
            "declared": steer.declare(conn, body.deployment, said, actor=_actor(body), now=now).to_json(),
        }
    )


@router.put("/flags/{key}/opts")
def opt(key: str, body: Opt, once: Once) -> dict[str, Any]:
    """Opt a deployment in or out of a flag, or take that back. Opting out condemns what is on."""
    return once(
        lambda conn, now: {
            "deployment": body.deployment,
            "opted": body.opted,
            "changed": steer.opt(conn, key, body.deployment, body.opted, actor=_actor(body), now=now),
        }
    )


@router.post("/flags/{key}/pins", status_code=201)
def force(key: str, body: Force, once: Once) -> dict[str, Any]:
    """Pin an open generation by hand. It is not compared."""
    where = (body.deployment, body.generation)
    return once(
        lambda conn, now: {
            "deployment": body.deployment,
            "generation": body.generation,
            "pin": shown(steer.force(conn, key, *where, body.variant, actor=_actor(body), now=now)),
        }
    )


@router.post("/flags/{key}/reopen")
def reopen(key: str, body: Reopen, once: Once) -> dict[str, Any]:
    """Close an epoch while its engines live: the next to register is decided anew."""
    where = (body.deployment, body.generation)
    return once(
        lambda conn, now: {
            "deployment": body.deployment,
            "generation": body.generation,
            "closed": shown(steer.reopen(conn, key, *where, actor=_actor(body), now=now)),
        }
    )


@router.get("/flags/{key}/treated")
def list_treated(key: str, ctx: Ctx, paged: Paged) -> Listed:
    """Engines that were told to be on, and live: what an abort waits for."""
    with ctx.db.read() as conn:
        flag = flags.get(conn, key).key
        every = treated.keyed(conn, flag, ctx.clock())
        return paged(f"treated {flag}", (str,) * 5, lambda place: place.among(every))


def _actor(body: Change) -> Actor:
    return Actor(author=body.author, reason=body.reason)
