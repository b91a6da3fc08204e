# SPDX-License-Identifier: Apache-2.0
"""What the pages load, all of it ours and served by us: the stylesheet and one script."""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["routes"]

_FILES = {"kvflags.css": "text/css", "live.js": "text/javascript"}


def routes() -> list[Route]:
    """One for each file: nothing else of the package can be asked for."""
    return [_route(name, media_type) for name, media_type in _FILES.items()]


def _route(name: str, media_type: str) -> Route:
    async def serve(_: Request) -> Response:
        text = (files(__name__) / name).read_text("utf-8")
        return Response(text, media_type=media_type, headers={"X-Content-Type-Options": "nosniff"})

    return Route(f"/static/{name}", serve)
