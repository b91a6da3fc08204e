# SPDX-License-Identifier: Apache-2.0
"""The live tokens in memory, so that asking for one is a look into a dictionary, on the event loop.

A thread reads them again every few seconds, since another collector may have changed them. While the database cannot be
read the last ones hold: what a fleet sends waits for the same database anyway.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from kvflags.errors import KvflagsError, Unauthorized
from kvflags_collector.access import tokens
from kvflags_collector.access.scopes import Scope, covers
from kvflags_collector.store.database import Database

__all__ = ["Denied", "Identity", "Keyring"]

_log = logging.getLogger(__name__)

# How long a token that was revoked through another collector still opens this one.
_AGAIN_S = 2.0

_HINT = "set KVFLAGS_TOKEN to a token with the scope `{}`; an admin makes one with `kvflags tokens create`"


class Denied(Unauthorized):
    """`status`: 401 without a token that holds, 403 where it may not. `challenge`: the WWW-Authenticate header."""

    def __init__(self, status: int, message: str, hint: str, challenge: str) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.challenge = challenge


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose token it is. `expires_us`: None for never."""

    name: str
    scope: Scope
    expires_us: int | None


class Keyring:
    """`tokenless`: the scopes that need no token here. `clock` gives microseconds, UTC.

    `start`, `close` and `reload` block and never run on the event loop; `asks`, `identify` and `check` never block.
    """

    def __init__(self, db: Database, *, tokenless: frozenset[Scope], clock: Callable[[], int]) -> None:
        self._tokenless = tokenless
        self._db, self._clock = db, clock
        self._live: dict[bytes, Identity] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvflags-keyring", daemon=True)

    def asks(self, needed: Scope) -> bool:
        """Whether what needs this scope needs a token at all."""
        return needed not in self._tokenless

    def start(self) -> None:
        self.reload()
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def reload(self) -> None:
        """Read the live tokens. A dictionary is replaced, never changed, so nobody sees half of it."""
        with self._db.read() as conn:
            rows = tokens.live(conn, self._clock())
        self._live = {bytes(row.hash): Identity(row.name, Scope(row.scope), row.expires_us) for row in rows}

    def identify(self, authorization: str | None) -> Identity | None:
        """Whose token an Authorization header (`Bearer TOKEN`) holds; None where it holds none that lives."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        # By the hash: how long the look-up takes tells about the hash of what was sent, and nothing about a secret.
        return self.by_hash(tokens.hashed(token.strip()))

    def by_hash(self, hashed: bytes) -> Identity | None:
        """Whose token has this hash; None where it does not live."""
        found = self._live.get(hashed)
        if found and found.expires_us is not None and found.expires_us <= self._clock():
            return None
        return found

    def check(self, authorization: str | None, needed: Scope) -> Identity | None:
        """The token's identity; None without one, where none is needed.

        Raises:
            Denied: no token, or not this scope.
        """
        return self.permit(self.identify(authorization), needed, sent=bool(authorization))

    def permit(self, found: Identity | None, needed: Scope, *, sent: bool) -> Identity | None:
        """The same for an identity that was found otherwise; `sent`: whether there was anything to find one by."""
        if not self.asks(needed) or (found and covers(found.scope, needed)):
            return found
        hint = _HINT.format(needed)
        if found:
            message = f"the token {found.name} has the scope {found.scope}; this needs {needed}"
            raise Denied(403, message, hint, f'Bearer realm="kvflags", error="insufficient_scope", scope="{needed}"')
        if sent:
            raise Denied(401, "the token is not known here, expired or revoked", hint, _INVALID)
        raise Denied(401, "a token is needed", hint, 'Bearer realm="kvflags"')

    def _run(self) -> None:
        while not self._stop.wait(_AGAIN_S):
            try:
                self.reload()
            except KvflagsError as error:
                _log.warning("the tokens were not read again: %s", error)


_INVALID = 'Bearer realm="kvflags", error="invalid_token"'
