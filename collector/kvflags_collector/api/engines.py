# SPDX-License-Identifier: Apache-2.0
"""Engines: register, heartbeat, list."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from fastapi import APIRouter

from kvflags.errors import ErrorCode, Unavailable
from kvflags_collector.api.context import Ctx, Received
from kvflags_collector.api.paging import Listed, Paged
from kvflags_collector.api.schemas.engines import HeartbeatBody, RegisterBody
from kvflags_collector.rollout import inventory, ledger

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/engines", tags=["engines"])

# An engine waits 2 s for its answer and then runs `off`. A pin `on` that is committed later than that would leave it
# beside a pin that it does not follow, so within 1 s it is committed or it never was; the other second is for the way.
_IN_TIME_S = 1.0

# A pin that is there already is worth waiting for as long as the engine does: asking again would cost its place.
_PATIENCE_S = 1.8


@router.post("/register")
def register(body: RegisterBody, ctx: Ctx, received: Received) -> dict[str, Any]:
    """Register a front end; creates or reads the pin of its generation. Idempotent by `registration_id`."""
    whose, wait_s = body.deployment or body.registration_id, received + _PATIENCE_S - time.monotonic()
    with ctx.db.write(deployment=whose, wait_s=wait_s) as conn:
        now = ctx.clock()
        answer = ledger.register(conn, body.message(), now, ctx.timing)
        late = time.monotonic() > received + _IN_TIME_S
        if late and ledger.turned_on(conn, body.registration_id, now):
            raise Unavailable(
                "too late to switch on", hint="the engine runs off; it may register again", code=ErrorCode.OVERLOADED
            )
    return answer


@router.post("/{registration_id}/heartbeat")
def heartbeat(registration_id: str, body: HeartbeatBody, ctx: Ctx) -> dict[str, Any]:
    """Renew an engine's lease and take in what it knows by now. 404: register again, saying what is running."""
    with ctx.db.read() as conn:
        whose = ledger.whose(conn, registration_id)
    with ctx.db.write(deployment=whose) as conn:
        return ledger.heartbeat(conn, registration_id, body.message(), ctx.clock(), ctx.timing)


@router.get("")
def engines(ctx: Ctx, paged: Paged, live: bool = False) -> Listed:
    """Engines, the last that registered first. `live`: only those whose lease holds."""
    with ctx.db.read() as conn:
        found = partial(inventory.page_of_engines, conn, ctx.clock(), live=live)
        return paged("engines", (int, str, str), found)
