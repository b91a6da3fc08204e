# SPDX-License-Identifier: Apache-2.0
"""The hub: bundles and revocations in, organisations and reports out; and the bundle that this fleet could send."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from kvflags.errors import ErrorCode, NotFound
from kvflags.signatures import public_key
from kvflags_collector.api.context import Ctx, State
from kvflags_collector.api.schemas.access import Admit
from kvflags_collector.api.schemas.signed import Signed
from kvflags_collector.hub import receive as receiving
from kvflags_collector.hub import register, schema
from kvflags_collector.hub.field_report import field_report
from kvflags_collector.hub.gather import gather
from kvflags_collector.hub.register import Standing
from kvflags_collector.rollout.keys import private_key
from kvflags_collector.times import parsed

__all__ = ["router"]

router = APIRouter(prefix="/api/v1", tags=["hub"])


async def _as_sent(request: Request) -> dict[str, Any]:
    """The document itself: a signature holds for its bytes, and reading it into a shape may write 0 as 0.0."""
    # A body that is missing altogether is told by the shape.
    document: dict[str, Any] = await request.json() if await request.body() else {}
    return document


async def _hub(ctx: Ctx) -> State:
    if not ctx.hub:
        raise NotFound(
            "this collector is no hub", hint="its operator starts it with --hub to be one", code=ErrorCode.NOT_A_HUB
        )
    return ctx


AsSent = Annotated[dict[str, Any], Depends(_as_sent)]
Hub = Annotated[State, Depends(_hub)]


@router.get("/flags/{key}/bundle")
def show_bundle(key: str, ctx: Ctx) -> dict[str, Any]:
    """What a bundle about the flag holds now, not signed, and sent nowhere. Schema kvflags.bundle/1."""
    now = ctx.clock()
    with ctx.db.write() as conn:
        own = public_key(private_key(conn, now))
    with ctx.db.read() as conn:
        return gather(conn, key, own, now)


@router.post("/hub/bundles", status_code=201)
def receive(body: schema.Signed, sent: AsSent, hub: Hub) -> dict[str, Any]:
    """Take a signed bundle. It is counted from when an admin admits the organisation. The answer is the receipt."""
    with hub.db.write() as conn:
        return receiving.receive(conn, body.bundle, sent, hub.clock())


@router.post("/hub/revocations")
def revoke(body: schema.SignedRevocation, sent: AsSent, hub: Hub) -> dict[str, Any]:
    """Take back a bundle, or all of an organisation for good. Repeating it changes nothing."""
    with hub.db.write() as conn:
        return receiving.revoke(conn, body.revocation, sent, hub.clock())


@router.get("/hub/organisations")
def organisations(hub: Hub) -> dict[str, Any]:
    """Who sent something, and whether it is counted."""
    with hub.db.read() as conn:
        return {"items": register.listing(conn)}


@router.post("/hub/organisations/{organisation}/admit")
def admit(organisation: str, body: Admit, hub: Hub) -> dict[str, Any]:
    """Count what this organisation sent, and will send."""
    return _stand(hub, organisation, Standing.ADMITTED, author=body.author, name=body.name)


@router.post("/hub/organisations/{organisation}/dismiss")
def dismiss(organisation: str, body: Signed, hub: Hub) -> dict[str, Any]:
    """Count nothing of this organisation any more."""
    return _stand(hub, organisation, Standing.DISMISSED, author=body.author)


@router.get("/hub/reports/{feature}")
def report(feature: str, hub: Hub, as_of: datetime | None = None) -> dict[str, Any]:
    """What is known of a feature over organisations, now or as of a time. Schema kvflags.hub_report/1."""
    with hub.db.read() as conn:
        return field_report(conn, feature, None if as_of is None else parsed(as_of))


def _stand(hub: State, which: str, state: Standing, *, author: str, name: str = "") -> dict[str, Any]:
    with hub.db.write() as conn:
        return register.change(conn, which, state, author=author, name=name, now=hub.clock())
