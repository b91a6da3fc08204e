# SPDX-License-Identifier: Apache-2.0
"""What people send has a name under it, and a change a reason."""

from __future__ import annotations

from pydantic import Field

from kvflags_collector.api.schemas.fields import Author, Body, Revision, Text

__all__ = ["Change", "Signed"]


class Signed(Body):
    """Who does it: without a name, the token's."""

    author: Author = Field(default_factory=lambda: None, validate_default=True)


class Change(Signed):
    """Who changes a flag, and why. `revision`: the one it was based on; another in force is a 409."""

    reason: Text
    revision: Revision | None = None
