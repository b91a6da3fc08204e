# SPDX-License-Identifier: Apache-2.0
"""A page that stays open: it follows what others do, says when it cannot, and finds its way back by itself."""

from __future__ import annotations

from filled import KEY
from playwright.sync_api import expect


def _change(site, what: str, reason: str) -> None:
    """As somebody else does it."""
    with site.service.client() as client:
        client.post("flags", KEY, what, body={"author": "bob", "reason": reason})


def test_what_others_do_is_seen_without_a_reload_and_what_is_filled_in_stays(own_site, look):
    page = look()
    own_site.sign_in(page)
    expect(page.locator("#live")).to_have_text("live")
    page.locator("#act-abort summary").click()
    page.locator("#act-abort").get_by_label("Reason").fill("half a sentence")
    _change(own_site, "pause", "lunch")
    expect(page.locator("#phase")).to_contain_text("pause by bob")
    expect(page.locator("#timeline")).to_contain_text("lunch")
    expect(page.locator("#act-abort").get_by_label("Reason")).to_have_value("half a sentence")
    expect(page.locator("#act-abort").get_by_label("Reason")).to_be_focused()
    expect(page.locator("#live")).to_contain_text("except for what you are filling in")


def test_a_collector_that_ends_is_said_and_its_return_is_seen(own_site, look, accessible):
    page = look(broken_is_fine=True)
    page.goto(own_site.rollout)
    expect(page.locator("#live")).to_have_text("live")
    own_site.service.kill()
    expect(page.locator("#live")).to_contain_text("connection lost")
    # What was there stays readable.
    expect(page.get_by_role("heading", level=1)).to_contain_text("Waiting")
    accessible(page)
    own_site.service.start(timeout=120)
    _change(own_site, "pause", "after the restart")
    expect(page.locator("#phase")).to_contain_text("after the restart", timeout=120_000)
    expect(page.locator("#live")).to_have_text("live")


def test_the_page_of_all_rollouts_follows_too(own_site, look):
    page = look()
    page.goto(own_site.url)
    expect(page.locator("#live")).to_have_text("live")
    row = page.locator("#rollouts tbody tr")
    expect(row).to_contain_text("running")
    _change(own_site, "abort", "errors")
    expect(row).to_contain_text("aborted")
    expect(page.locator("#live")).to_have_text("live")
