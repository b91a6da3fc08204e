# SPDX-License-Identifier: Apache-2.0
"""Tokens: make, list, revoke."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from kvflags_collector.access import tokens
from kvflags_collector.api.context import Ctx, Keys
from kvflags_collector.api.paging import Listed, Paged
from kvflags_collector.api.schemas.access import NewToken
from kvflags_collector.api.schemas.signed import Signed

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"])


@router.post("", status_code=201)
def create(body: NewToken, ctx: Ctx, keys: Keys) -> dict[str, Any]:
    """A new token. `token` is its secret, and stands in this answer only."""
    with ctx.db.write() as conn:
        made = tokens.create(conn, **body.model_dump(), now=ctx.clock())
    keys.reload()
    return made


@router.get("")
def list_tokens(ctx: Ctx, paged: Paged) -> Listed:
    """The tokens, without their secrets, the newest first."""
    with ctx.db.read() as conn:
        return paged("tokens", (int, str), lambda place: tokens.listing(conn, ctx.clock(), place))


@router.post("/{token_id}/revoke")
def revoke(token_id: str, body: Signed, ctx: Ctx, keys: Keys) -> dict[str, Any]:
    """End a token: here at once, at other collectors of the database within seconds. Repeating it changes nothing."""
    with ctx.db.write() as conn:
        ended = tokens.revoke(conn, token_id, author=body.author, now=ctx.clock())
    keys.reload()
    return ended
