# SPDX-License-Identifier: Apache-2.0
"""Signed decisions: what `kvflags decide` hands out with a deployment, for engines that may be cut off. Ed25519.

A token is `PAYLOAD.SIGNATURE`, both base64url without padding; the payload is canonical JSON (keys sorted, no white
space, ASCII). The collector signs and the engine verifies with this same module.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from kvflags.errors import UsageError
from kvflags.flags import Arm, Comparison, Decision, PinState, Variant

__all__ = ["BadToken", "Claims", "new_key", "public_key", "sign", "verify"]

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


def new_key() -> bytes:
    """A private key: 32 bytes to be kept by the collector."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


def public_key(private_key: bytes) -> str:
    """What goes into `KVFLAGS_DECISION_KEY`."""
    return _encoded(Ed25519PrivateKey.from_private_bytes(private_key).public_key().public_bytes_raw())


def sign(private_key: bytes, claims: Claims) -> str:
    """The token. The same key and claims always give the same one."""
    payload = json.dumps(asdict(claims), sort_keys=True, separators=(",", ":")).encode()
    signature = Ed25519PrivateKey.from_private_bytes(private_key).sign(payload)
    return f"{_encoded(payload)}.{_encoded(signature)}"


def verify(
    public_key: str, token: str, now: float, *, deployment: str | None = None, generation: str | None = None
) -> Claims:
    """The claims, once signature, shape, time and (where given) deployment and generation hold. Raises BadToken."""
    payload, signature = _parts(token)
    _check_signature(public_key, payload, signature)
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
    payload, dot, signature = token.partition(".")
    try:
        if not dot or len(token) > _MAX_TOKEN:
            raise ValueError
        return _decoded(payload), _decoded(signature)
    except ValueError:
        raise BadToken(
            "malformed", "The handed-out decision is not a token", hint="Copy it whole from `kvflags decide`"
        ) from None


def _check_signature(public_key: str, payload: bytes, signature: bytes) -> None:
    try:
        key = Ed25519PublicKey.from_public_bytes(_decoded(public_key))
    except ValueError:
        raise BadToken(
            "bad_key", "KVFLAGS_DECISION_KEY is not a public key", hint="Copy it whole from `kvflags decide`"
        ) from None
    try:
        key.verify(signature, payload)
    except InvalidSignature:
        raise BadToken(
            "bad_signature",
            "The handed-out decision was not signed by the owner of KVFLAGS_DECISION_KEY",
            hint="Take both from one call of `kvflags decide`",
        ) from None


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


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    """Strict: every byte string has one spelling. Raises ValueError."""
    data = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    if _encoded(data) != text:
        raise ValueError("not base64url")
    return data
