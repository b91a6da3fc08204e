# SPDX-License-Identifier: Apache-2.0
"""A browser on a collector that asks for tokens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browsing import Browser
from guarded import Guarded


@pytest.fixture
def browser(db) -> Iterator[Browser]:
    """Not signed in yet."""
    guarded = Guarded(db)
    with guarded.http:
        yield Browser(guarded)
