# SPDX-License-Identifier: Apache-2.0
"""Sessions of browsers: a cookie that stands for a token without holding it, and forms that only our pages can send.

The cookie is the hash of the token and an expiry, signed with a key that all collectors of a database share: it needs
no table, survives a restart, and ends with the token that it stands for.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable

from kvflags_collector.access.keyring import Identity, Keyring
from kvflags_collector.access.scopes import Scope
from kvflags_collector.access.tokens import hashed
from kvflags_collector.rollout.keys import private_key
from kvflags_collector.store.database import Database
from kvflags_collector.times import SECOND

__all__ = ["COOKIE", "LASTS_S", "Sessions"]

COOKIE = "kvflags_session"
# A working day: the next morning begins with the token again.
LASTS_S = 12 * 3600

_HASH = 32
_EXPIRY = 8


class Sessions:
    """`clock` gives microseconds, UTC. `start` reads the key and blocks; everything else only computes."""

    def __init__(self, db: Database, keyring: Keyring, clock: Callable[[], int]) -> None:
        self._db, self._keyring, self._clock = db, keyring, clock
        self._key = b""

    def asks(self, needed: Scope) -> bool:
        """Whether what needs this scope needs a token or a session at all."""
        return self._keyring.asks(needed)

    def start(self) -> None:
        with self._db.write() as conn:
            private = private_key(conn, self._clock())
        # Another key than the one that signs decisions, so that neither can be made to say what the other means.
        self._key = hmac.digest(private, b"kvflags browser sessions", "sha256")

    def close(self) -> None:
        """Nothing is held."""

    def open(self, token: str) -> str | None:
        """The cookie's value for a token that lives, else None."""
        if self._keyring.by_hash(hashed(token)) is None:
            return None
        expires = self._clock() + LASTS_S * SECOND
        claims = hashed(token) + expires.to_bytes(_EXPIRY, "big")
        return base64.urlsafe_b64encode(claims + self._mac(b"session", claims)).decode("ascii")

    def identity(self, cookie: str | None) -> Identity | None:
        """Whose session it is; None for none, one that is over, or one that we never gave."""
        claims = self._claims(cookie or "")
        if claims is None or int.from_bytes(claims[_HASH:], "big") <= self._clock():
            return None
        return self._keyring.by_hash(claims[:_HASH])

    def form(self, cookie: str | None) -> str:
        """What each form of a page holds, and no other site can read: made of the session, or of having none."""
        return self._mac(b"form", (cookie or "").encode()).hex()

    def ours(self, form: str, cookie: str | None) -> bool:
        """Whether a form was made by `form` for this session."""
        return hmac.compare_digest(form.encode(), self.form(cookie).encode())

    def _claims(self, cookie: str) -> bytes | None:
        try:
            sent = base64.b64decode(cookie.encode("ascii"), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError):
            return None
        claims, mac = sent[: _HASH + _EXPIRY], sent[_HASH + _EXPIRY :]
        return claims if hmac.compare_digest(mac, self._mac(b"session", claims)) else None

    def _mac(self, purpose: bytes, what: bytes) -> bytes:
        assert self._key, "started before anybody asks"
        return hmac.digest(self._key, purpose + b"\0" + what, hashlib.sha256)
