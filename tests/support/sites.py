# SPDX-License-Identifier: Apache-2.0
"""Collectors in processes of their own, each with a whole fleet in its database."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import filled

from kvflags_cli.demo.pair import free_port
from kvflags_cli.demo.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["Site", "sites"]


class Site:
    """A collector with one of `filled.FLEETS` in it; it serves on when this returns. hub: it takes bundles, too."""

    def __init__(self, folder: Path, fleet: str, *, hub: bool = False) -> None:
        database = folder / "kvflags.db"
        # In a process of its own: Playwright runs an event loop in this one, where no transaction may block.
        subprocess.run([sys.executable, filled.__file__, fleet, database], check=True)
        self.service = Service(database, folder / "log", port=free_port(), heartbeat="30s", hub=hub)
        self.service.start(timeout=120)
        self.url = self.service.url
        self.rollout = f"{self.url}/rollouts/{filled.KEY}"

    def token(self, name: str, scope: str = "operate") -> str:
        """A new one, for whoever changes something."""
        with self.service.client() as client:
            return client.post("tokens", body={"name": name, "scope": scope, "author": "a test"})["token"]

    def sign_in(self, page: Page, name: str = "ann") -> None:
        """Open the rollout in a browser, and sign in as somebody who may operate."""
        page.goto(self.rollout)
        page.locator("header").get_by_role("link", name="Sign in").click()
        page.get_by_label("Token").fill(self.token(name))
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(self.rollout)


@contextmanager
def sites(folder_of: Callable[[str], Path]) -> Iterator[Callable[[str], Site]]:
    """sites(name): the collector with that fleet, made once, for all who only read it."""
    made: list[Site] = []

    @cache
    def site(name: str) -> Site:
        made.append(Site(folder_of(name), name))
        return made[-1]

    yield site
    for one in made:
        one.service.stop()
