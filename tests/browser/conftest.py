# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium in front of real collector processes, each with a whole fleet in its database."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chromium import PATIENCE_MS, chromium
from chromium import accessible as nothing_wrong
from playwright.sync_api import Browser, BrowserContext, Page
from sites import Site
from sites import sites as made_once

IMAGES = Path(__file__).parents[2] / "docs" / "images"
_FIGURES = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is a browser test."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Times depend on the machine, so they are told and not judged."""
    for says in config.stash.get(_FIGURES, []):
        terminalreporter.line(says)


@pytest.fixture
def figure(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """figure(text): a line at the end of the run."""
    return pytestconfig.stash.setdefault(_FIGURES, []).append


@pytest.fixture(scope="session")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Site]]:
    """sites(name): the collector with that fleet, for all who only read it."""
    with made_once(tmp_path_factory.mktemp) as site:
        yield site


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """A small fleet of this test's own: it may be changed, and its collector ended."""
    site = Site(tmp_path, "waiting")
    yield site
    site.service.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """No longer than a module: see `chromium`."""
    with chromium() as browser:
        yield browser


class Looked:
    """A page, and what a reader would not see of it: what it asked others for, and what broke in it."""

    def __init__(self, context: BrowserContext) -> None:
        self.page: Page = context.new_page()
        self.elsewhere: list[str] = []
        self.broken: list[str] = []
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("pageerror", lambda error: self.broken.append(str(error)))
        self.page.on("console", lambda said: self.broken.append(said.text) if said.type == "error" else None)

    def _asked(self, url: str) -> None:
        if not re.match(r"(http://127\.0\.0\.1:|data:|blob:)", url):
            self.elsewhere.append(url)


@pytest.fixture
def look(browser: Browser) -> Iterator[Callable[..., Page]]:
    """look(**context): a page in a browser of its own; at the end it has asked nobody else, and nothing broke in it.

    `broken_is_fine`: for tests that break something, or ask for what is refused, which a console calls an error.
    """
    made: list[tuple[Looked, bool]] = []
    contexts: list[BrowserContext] = []

    def look(*, broken_is_fine: bool = False, **options: object) -> Page:
        contexts.append(browser.new_context(timezone_id="Europe/Berlin", locale="en-GB", **options))  # type: ignore[arg-type]
        contexts[-1].set_default_timeout(PATIENCE_MS)
        made.append((Looked(contexts[-1]), broken_is_fine))
        return made[-1][0].page

    yield look
    for context in contexts:
        context.close()
    for looked, broken_is_fine in made:
        assert not looked.elsewhere
        assert broken_is_fine or not looked.broken


@pytest.fixture
def accessible() -> Callable[[Page], None]:
    """accessible(page): axe finds nothing wrong with what is shown now."""
    return nothing_wrong


@pytest.fixture
def picture() -> Callable[[Page, str], None]:
    """picture(page, name): kept in docs/images where `make screenshots` asked for it."""

    def take(page: Page, name: str) -> None:
        if os.environ.get("KVFLAGS_SCREENSHOTS"):
            IMAGES.mkdir(exist_ok=True)
            page.screenshot(path=IMAGES / f"{name}.png")

    return take
