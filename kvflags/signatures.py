# SPDX-License-Identifier: Apache-2.0
"""Ed25519 over canonical JSON; keys and signatures are base64url without padding. Decisions and bundles use it."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["canonical", "decoded", "encoded", "holds", "new_key", "public_key", "signature"]


def canonical(document: Any) -> bytes:  # noqa: ANN401 - any JSON document
    """Keys sorted, no white space, ASCII: the same document is the same bytes. ValueError for NaN and infinities."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def new_key() -> bytes:
    """A private key: 32 bytes."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


def public_key(private_key: bytes) -> str:
    """What others check signatures of the private key with. ValueError unless it has 32 bytes."""
    return encoded(Ed25519PrivateKey.from_private_bytes(private_key).public_key().public_bytes_raw())


def signature(private_key: bytes, payload: bytes) -> bytes:
    """The same key and payload always give the same 64 bytes."""
    return Ed25519PrivateKey.from_private_bytes(private_key).sign(payload)


def holds(public_key: str, payload: bytes, signature: bytes) -> bool:
    """Whether the owner of the key signed this payload. ValueError where the key is none."""
    try:
        Ed25519PublicKey.from_public_bytes(decoded(public_key)).verify(signature, payload)
    except InvalidSignature:
        return False
    return True


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    """Strict: every byte string has one spelling. Raises ValueError."""
    data = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    if encoded(data) != text:
        raise ValueError("not base64url")
    return data
