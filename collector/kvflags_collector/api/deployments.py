# SPDX-License-Identifier: Apache-2.0
"""Deployments and alarms: lists."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from kvflags_collector.api.context import Ctx
from kvflags_collector.rollout import alarms, inventory

__all__ = ["router"]

router = APIRouter(prefix="/api/v1", tags=["deployments"])


@router.get("/deployments")
def deployments(ctx: Ctx) -> dict[str, Any]:
    """All deployments; engines without one are the item whose `deployment` is null."""
    with ctx.db.read() as conn:
        return {"items": inventory.deployments(conn, ctx.clock())}


@router.get("/alarms")
def list_alarms(ctx: Ctx) -> dict[str, Any]:
    """All alarms, those that stand first."""
    with ctx.db.read() as conn:
        return {"items": alarms.listing(conn)}
