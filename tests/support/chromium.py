# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium, as the tests of pages start it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe
from needed import program
from playwright.sync_api import Browser, Page, expect, sync_playwright

__all__ = ["PATIENCE_MS", "accessible", "chromium"]

# A page is there within a second; whoever waits longer waits for a machine that others use too.
PATIENCE_MS = 30_000
# No first run, no look for updates, no network but ours; glyphs as they are without a screen's hints.
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
_ARGUMENTS += ["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--font-render-hinting=none"]

expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def chromium() -> Iterator[Browser]:
    """While it runs, so does an event loop in this thread, which other tests must not meet."""
    path = program("chromium", "chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS, timeout=120_000)
        yield browser
        browser.close()


def accessible(page: Page) -> None:
    """axe finds nothing wrong with what is shown now."""
    found = Axe().run(page)
    assert found.violations_count == 0, f"{page.url}\n{found.generate_report()}"
