# SPDX-License-Identifier: Apache-2.0
"""A collector that asks for tokens, with one token of each scope."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from guarded import Guarded
from starlette.testclient import TestClient

from kvflags_collector.app import create_app
from kvflags_collector.settings import Settings
from kvflags_collector.store.database import Database


@pytest.fixture
def guarded(db: Database) -> Iterator[Guarded]:
    made = Guarded(db)
    with made.http:
        yield made


@pytest.fixture
def unguarded(db: Database) -> Iterator[TestClient]:
    """A collector on loopback, which asks for no tokens."""
    with TestClient(create_app(Settings(db=db.url), db), "http://127.0.0.1") as client:
        yield client
