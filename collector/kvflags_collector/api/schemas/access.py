# SPDX-License-Identifier: Apache-2.0
"""Who may do what."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kvflags_collector.access.scopes import Scope
from kvflags_collector.api.schemas.fields import Line
from kvflags_collector.api.schemas.signed import Signed

__all__ = ["Admit", "NewToken"]


class NewToken(Signed):
    """`POST /api/v1/tokens`. `expires_s`: null for never."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]
    scope: Annotated[Scope, Field(strict=False)]
    expires_s: float | None = None


class Admit(Signed):
    """`name`: what the hub's operator calls the organisation; it is printed in no report."""

    name: Line = ""
