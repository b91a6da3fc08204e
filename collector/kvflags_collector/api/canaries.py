# SPDX-License-Identifier: Apache-2.0
"""Results of canaries, as `kvflags canary run` tells them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from sqlalchemy import Connection

from kvflags_collector.api.once import Once
from kvflags_collector.api.schemas.feedback import CanaryResult
from kvflags_collector.rollout import canaries

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/canaries", tags=["feedback"])


@router.post("", status_code=201)
def take(body: CanaryResult, once: Once) -> dict[str, Any]:
    """Keep a result. A mismatch raises an alarm, and condemns the generation under each flag that treats it."""

    def act(conn: Connection, now: int) -> dict[str, Any]:
        place = (body.deployment, body.generation)
        return canaries.take(conn, place, body.found(), author=body.author, now=now)

    return once(act, deployment=body.deployment)
