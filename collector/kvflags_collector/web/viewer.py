# SPDX-License-Identifier: Apache-2.0
"""Who looks at a page, and what they may do: what differs between two who look at the same document."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from starlette.requests import Request

from kvflags_collector.access.keyring import Identity
from kvflags_collector.access.scopes import Scope, covers
from kvflags_collector.access.sessions import COOKIE, Sessions

__all__ = ["NOBODY", "Viewer", "identity_of", "viewer_of"]


@dataclass(frozen=True, slots=True)
class Viewer:
    """name: of the token, None without one. form: what every form holds. signed_in: by a cookie. sign_in: where to get
    what acting needs, empty for whoever may act, or has a token already."""

    name: str | None
    may_operate: bool
    form: str
    signed_in: bool
    sign_in: str = ""


NOBODY = Viewer(None, may_operate=False, form="", signed_in=False)


def identity_of(request: Request) -> Identity | None:
    """Whom the guard let in; None where no token is needed and none was sent."""
    found: Identity | None = request.scope.get("kvflags.identity")
    return found


def viewer_of(request: Request, sessions: Sessions) -> Viewer:
    """Of a request that the guard let in."""
    found, cookie = identity_of(request), request.cookies.get(COOKIE)
    may = covers(found.scope, Scope.OPERATE) if found else not sessions.asks(Scope.OPERATE)
    by_cookie = found is not None and "authorization" not in request.headers
    way_in = "" if found or may else f"/login?next={quote(request.scope['raw_path'].decode('latin-1'))}"
    return Viewer(
        found.name if found else None,
        may_operate=may,
        form=sessions.form(cookie),
        signed_in=by_cookie,
        sign_in=way_in,
    )
