# SPDX-License-Identifier: Apache-2.0
"""How far the webhook's deliveries are, for `kvflags doctor` and whoever else asks."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from kvflags_collector.api.context import Ctx
from kvflags_collector.webhook import outbox

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/webhook", tags=["webhook"])


@router.get("")
def webhook(ctx: Ctx) -> dict[str, Any]:
    """Events delivered, waiting and given up, and why the newest that was tried failed; `null` where none was set."""
    with ctx.db.read() as conn:
        found = outbox.standing(conn)
    return {"webhook": found and found._asdict()}
