# SPDX-License-Identifier: Apache-2.0
"""Deployments and alarms: lists."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from kvflags_collector.api.context import Ctx
from kvflags_collector.api.paging import Listed, Paged
from kvflags_collector.rollout import alarms, inventory
from kvflags_collector.store.places import Keyed, Place

__all__ = ["router"]

router = APIRouter(prefix="/api/v1", tags=["deployments"])


@router.get("/deployments")
def deployments(ctx: Ctx, paged: Paged, prefix: Annotated[str, Query(max_length=253)] = "") -> Listed:
    """Deployments by name; engines without one are the item whose `deployment` is null, the last.

    `prefix`: only those whose name begins with it.
    """
    with ctx.db.read() as conn:

        def found(place: Place) -> list[Keyed]:
            return [((one["deployment"],), one) for one in inventory.deployments(conn, ctx.clock(), place, prefix)]

        return paged("deployments", (str,), found)


@router.get("/alarms")
def list_alarms(ctx: Ctx, paged: Paged) -> Listed:
    """All alarms, those that stand first, then the newest."""
    with ctx.db.read() as conn:

        def found(place: Place) -> list[Keyed]:
            return [((int(one["ended_at"] is None), one["id"]), one) for one in alarms.listing(conn, place)]

        return paged("alarms", (int, int), found)
