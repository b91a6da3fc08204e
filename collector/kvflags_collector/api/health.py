# SPDX-License-Identifier: Apache-2.0
"""Liveness and readiness, for whoever supervises the process. Engines never depend on either."""

from __future__ import annotations

from fastapi import APIRouter

from kvflags.errors import Unavailable
from kvflags_collector.api.context import Ctx

__all__ = ["router"]

router = APIRouter(tags=["health"])


@router.get("/livez")
async def livez() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz")
def readyz(ctx: Ctx) -> dict[str, str]:
    """The database is at our revision and takes a write, and what works in the background does; else 503."""
    if not ctx.alive():
        raise Unavailable("a background thread has ended", hint="restart the collector; its log says why")
    ctx.db.check_revision()
    with ctx.db.append(wait_s=1.0):
        pass
    return {"status": "ok"}
