# SPDX-License-Identifier: Apache-2.0
"""Who is acting: the name of the token that the request at hand came with, for the audit of what it changes."""

from __future__ import annotations

from contextvars import ContextVar

__all__ = ["acting"]

# Set by the guard, and carried by the context into the thread that handles the request. None without a token.
acting: ContextVar[str | None] = ContextVar("acting", default=None)
