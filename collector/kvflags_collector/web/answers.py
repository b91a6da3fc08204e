# SPDX-License-Identifier: Apache-2.0
"""Answers to browsers: their headers, and errors as pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import HTMLResponse

from kvflags.errors import KvflagsError
from kvflags_collector.api.errors import status_of
from kvflags_collector.web.render import render
from kvflags_collector.web.viewer import NOBODY, Viewer

__all__ = ["HEADERS", "error", "failed", "html"]

# Nothing from anywhere else, and nothing inline: whatever a span or a comment says, a browser only shows it.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def html(template: str, values: Mapping[str, Any], viewer: Viewer, status: int = 200) -> HTMLResponse:
    """A page, with who looks at it in the head."""
    return HTMLResponse(render(template, {**values, "viewer": viewer}), status, HEADERS)


def failed(problem: KvflagsError, viewer: Viewer = NOBODY) -> HTMLResponse:
    """An error as a page."""
    return html("error.html", {"error": error(problem)}, viewer, status_of(problem))


def error(problem: KvflagsError) -> dict[str, str]:
    """As the API has it."""
    return {"code": problem.code.value, "message": problem.message, "hint": problem.hint}
