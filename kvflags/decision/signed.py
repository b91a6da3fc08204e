# SPDX-License-Identifier: Apache-2.0
"""Signed decisions: what `kvflags decide` hands out with a deployment, for engines that may be cut off. Ed25519.

A token is `PAYLOAD.SIGNATURE`, both base64url without padding; the payload is canonical JSON (keys sorted, no white
space, ASCII). The collector signs and the engine verifies with this same module.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from kvflags.errors import UsageError
from kvflags.flags import Arm, Comparison, Decision, PinState, Variant
from kvflags.signatures import canonical, decoded, encoded, holds, signature

__all__ = ["BadToken", "Claims", "sign", "verify"]

# A token with the longest ids allowed has about 1.2 kB; what is far longer is not looked at.
_MAX_TOKEN = 8192


class BadToken(UsageError):
    """The token is not to be followed. `why` is `malformed`, `bad_key`, `bad_signature`, `expired` or `for_another`."""

    def __init__(self, why: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What is signed. `expiry` is in whole seconds of Unix time; from that second on the token is void."""

    flag: str
    feature: str
    deployment: str
    generation: str
    epoch: int
    variant: str
    expiry: int
    arm: str | None = None
    comparison: str = Comparison.EXCLUDED
    revision: int = 0

    def decision(self, token: str) -> Decision:
        """The decision that it equals: a pin."""
        return Decision(
            feature=self.feature,
            flag=self.flag,
            variant=self.variant,
            reason="handed_out",
            arm=self.arm,
            comparison=self.comparison,
            revision=self.revision,
            epoch=self.epoch,
            state=PinState.PINNED,
            signed=token,
        )


def sign(private_key: bytes, claims: Claims) -> str:
    """The token. The same key and claims always give the same one."""
    payload = canonical(asdict(claims))
    return f"{encoded(payload)}.{encoded(signature(private_key, payload))}"


def verify(
    public_key: str, token: str, now: float, *, deployment: str | None = None, generation: str | None = None
) -> Claims:
    """The claims, once signature, shape, time and (where given) deployment and generation hold. Raises BadToken."""
    payload, signed = _parts(token)
    _check_signature(public_key, payload, signed)
    claims = _claims(payload)
    if claims.expiry <= now:
        raise BadToken("expired", "The handed-out decision has expired", hint="Run `kvflags decide` again")
    wanted = (deployment or claims.deployment, generation or claims.generation)
    if wanted != (claims.deployment, claims.generation):
        raise BadToken(
            "for_another",
            f"The handed-out decision is for {claims.deployment} {claims.generation}, not {wanted[0]} {wanted[1]}",
            hint="Run `kvflags decide` with this engine's deployment and generation",
        )
    return claims


def _parts(token: str) -> tuple[bytes, bytes]:
    payload, dot, signed = token.partition(".")
    try:
        if not dot or len(token) > _MAX_TOKEN:
            raise ValueError
        return decoded(payload), decoded(signed)
    except ValueError:
        raise BadToken(
            "malformed", "The handed-out decision is not a token", hint="Copy it whole from `kvflags decide`"
        ) from None


def _check_signature(public_key: str, payload: bytes, signed: bytes) -> None:
    try:
        ours = holds(public_key, payload, signed)
    except ValueError:
        raise BadToken(
            "bad_key", "KVFLAGS_DECISION_KEY is not a public key", hint="Copy it whole from `kvflags decide`"
        ) from None
    if not ours:
        raise BadToken(
            "bad_signature",
            "The handed-out decision was not signed by the owner of KVFLAGS_DECISION_KEY",
            hint="Take both from one call of `kvflags decide`",
        )


def _claims(payload: bytes) -> Claims:
    try:
        document = json.loads(payload)
        claims = Claims(**{field.name: document[field.name] for field in fields(Claims)})
    except (ValueError, KeyError, TypeError, RecursionError):
        claims = None
    if claims is None or not _well_formed(asdict(claims)):
        raise BadToken(
            "malformed", "The handed-out decision lacks a claim", hint="Are collector and engine of one release?"
        )
    return claims


def _well_formed(claims: Mapping[str, Any]) -> bool:
    strings = all(isinstance(claims[name], str) for name in ("flag", "feature", "deployment", "generation"))
    numbers = all(type(claims[name]) is int for name in ("epoch", "revision", "expiry"))
    arm_is_fine = claims["arm"] is None or claims["arm"] in tuple(Arm)
    return (
        strings
        and numbers
        and arm_is_fine
        and claims["variant"] in tuple(Variant)
        and claims["comparison"] in tuple(Comparison)
    )
