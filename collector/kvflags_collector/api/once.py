# SPDX-License-Identifier: Apache-2.0
"""Changes that happen once: `If-Match` names the revision they are based on, `Idempotency-Key` the request itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from sqlalchemy import Connection, delete, select

from kvflags.errors import Conflict, ErrorCode, UsageError
from kvflags_collector.api.context import Ctx, State
from kvflags_collector.store import locks
from kvflags_collector.store.control_tables import answers
from kvflags_collector.times import SECOND

__all__ = ["Once", "etag"]

# A client gives up on a request within minutes; a day also covers a pipeline that is run again the next morning.
_KEPT_US = 86_400 * SECOND

# For the OpenAPI document: what `_revision` reads.
_TAG = r'^(\*|(W/)?("[0-9]{1,9}"|[0-9]{1,9}))$'

_Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Once:
    """One request for a change. Call it with what is to be done; the change and its answer commit together."""

    state: State
    key: str | None
    fingerprint: str
    if_match: int | None

    def __call__(self, act: Callable[[Connection, int], _Json], *, deployment: str | None = None) -> _Json:
        """`deployment`: where the change concerns that one alone, and the rest of the fleet need not wait for it."""
        with self.state.db.write(deployment=deployment) as conn:
            now = self.state.clock()
            if self.key is None:
                return act(conn, now)
            # One key given to requests about two deployments: the second must find the answer of the first.
            locks.once(conn, f"answer {self.key}")
            given = self._given(conn, self.key)
            return self._keep(conn, self.key, act(conn, now), now) if given is None else given

    def _given(self, conn: Connection, key: str) -> _Json | None:
        row = conn.execute(select(answers.c.fingerprint, answers.c.document).where(answers.c.key == key)).first()
        if row is None:
            return None
        if row.fingerprint != self.fingerprint:
            raise Conflict(
                "this Idempotency-Key was used for another request",
                hint="make a new key for each request, and repeat it only with that request",
                code=ErrorCode.KEY_REUSED,
            )
        document: _Json = row.document
        return document

    def _keep(self, conn: Connection, key: str, document: _Json, now: int) -> _Json:
        conn.execute(delete(answers).where(answers.c.recorded_us < now - _KEPT_US))
        row = {"key": key, "fingerprint": self.fingerprint, "document": document, "recorded_us": now}
        conn.execute(answers.insert().values(**row))
        return document


async def _once(
    request: Request,
    state: Ctx,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=128)] = None,
    if_match: Annotated[str | None, Header(max_length=64, json_schema_extra={"pattern": _TAG})] = None,
) -> _Once:
    parts = (request.method.encode(), request.url.path.encode(), await request.body())
    fingerprint = hashlib.sha256(b"\0".join(parts)).hexdigest()
    return _Once(state, idempotency_key, fingerprint, _revision(if_match))


Once = Annotated[_Once, Depends(_once)]


def etag(revision: int) -> str:
    """The ETag of a flag at a revision, which `If-Match` gives back."""
    return f'"{revision}"'


def _revision(if_match: str | None) -> int | None:
    if if_match is None or if_match == "*":
        return None
    number = if_match.strip().removeprefix("W/").strip('"')
    if not (number.isascii() and number.isdigit()) or len(number) > 9:
        raise UsageError("If-Match is not the ETag of a flag", hint='such as If-Match: "12"')
    return int(number)
