# SPDX-License-Identifier: Apache-2.0
"""Decisions that are handed out: pin now, sign, and let the engines of a deployment agree without asking anybody."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from kvflags.decision import signed as tokens
from kvflags.errors import ErrorCode, NotFound
from kvflags.flags import Flag
from kvflags.signatures import public_key
from kvflags_collector.rollout import flags, pins, standing
from kvflags_collector.rollout.keys import private_key
from kvflags_collector.rollout.pins import Pin
from kvflags_collector.store.control_tables import deployments
from kvflags_collector.times import SECOND

__all__ = ["decide", "presented", "signed"]

# A token outlives its pin's first 90 days only as a new one: long enough for a deployment that is seldom touched, short
# enough that one found in an old manifest says nothing any more. It is made anew 45 days before it ends, so that asking
# twice within weeks gives the same text, and a manifest in git does not change for nothing.
_TERM_US = 90 * 86_400 * SECOND


def decide(conn: Connection, key: str, deployment: str, generation: str, now: int) -> dict[str, Any]:
    """Pin the generation if it is open, and hand its decision out: `{signed, key, decision}`. Writes.

    The epoch stays open until the token expires, since engines may follow it that nobody hears of.
    NotFound (`unknown_deployment`) for one that never registered: all its engines are off until they were observed.
    """
    flag = flags.get(conn, key)
    if conn.scalar(select(deployments.c.id).where(deployments.c.id == deployment)) is None:
        hint = "see `kvflags deployments list`; one is known once an engine registered"
        message = f"there is no deployment {deployment!r}"
        raise NotFound(message, hint=hint, code=ErrorCode.UNKNOWN_DEPLOYMENT)
    pin = pins.open_pin(conn, key, deployment, generation)
    if pin is None:
        ruling = standing.rule(conn, flag, deployment, now)
        pin = pins.make(conn, flag, deployment, generation, ruling, by="decide", now=now)
    pins.hold(conn, pin, _expiry(pin, now))
    token = signed(conn, flag, pin, now)
    return {
        "signed": token,
        "key": public_key(private_key(conn, now)),
        "decision": pins.decision(flag, pin, token).to_json(),
    }


def signed(conn: Connection, flag: Flag, pin: Pin, now: int) -> str:
    """The token of a pin. The same pin gives the same token for weeks."""
    claims = tokens.Claims(
        flag=flag.key,
        feature=flag.feature,
        deployment=pin.deployment,
        generation=pin.generation,
        epoch=pin.epoch,
        variant=pin.variant,
        expiry=_expiry(pin, now) // SECOND,
        arm=pin.arm,
        comparison=pin.comparison,
        revision=pin.revision,
    )
    return tokens.sign(private_key(conn, now), claims)


def presented(
    conn: Connection, flag: Flag, token: str | None, *, deployment: str, generation: str, now: int
) -> tokens.Claims | None:
    """The claims of a token that equals a pin which the ledger lost (a restored backup); None for every other.

    A token of an epoch that is in the ledger says nothing new: the pin stands, or its epoch was closed and it is void.
    """
    if token is None:
        return None
    try:
        claims = tokens.verify(
            public_key(private_key(conn, now)), token, now / SECOND, deployment=deployment, generation=generation
        )
    except tokens.BadToken:
        return None
    unknown = claims.flag == flag.key and claims.epoch > pins.last_epoch(conn, flag.key, deployment, generation)
    return claims if unknown else None


def _expiry(pin: Pin, now: int) -> int:
    terms = 1 + max(now - pin.pinned_us + _TERM_US // 2, 0) // _TERM_US
    return pin.pinned_us + terms * _TERM_US
