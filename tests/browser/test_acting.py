# SPDX-License-Identifier: Apache-2.0
"""An operator acts from the page: by mouse, by keyboard, without scripts, and too late."""

from __future__ import annotations

import pytest
from filled import KEY
from playwright.sync_api import Page, expect


def _confirm(page: Page, action: str, **fields: str) -> None:
    """Unfold an action, fill its form in and send it."""
    _confirm_on(page, f"act-{action}", **fields)


def _confirm_on(page: Page, part: str, **fields: str) -> None:
    form = page.locator(f"#{part}")
    form.locator("summary").click()
    for label, value in fields.items():
        form.get_by_label(label).fill(value)
    form.get_by_role("button").click()


def _flag(site) -> dict:
    with site.service.client() as client:
        return client.get("flags", KEY)


@pytest.mark.parametrize("scripts", [True, False])
def test_pause_resume_and_abort(own_site, look, accessible, scripts):
    page = look(java_script_enabled=scripts)
    own_site.sign_in(page)
    _confirm(page, "pause", Reason="the night shift is small")
    expect(page.locator("#phase")).to_contain_text("Paused")
    expect(page.locator("#phase")).to_contain_text("by ann")
    expect(page.locator("#phase")).to_contain_text("“the night shift is small”")
    expect(page.locator("#act-pause")).to_have_count(0)
    _confirm(page, "resume", Reason="morning")
    expect(page.locator("#phase")).to_contain_text("Running")
    _confirm(page, "abort")
    expect(page.locator("#phase")).to_contain_text("Aborted")
    # Treated engines keep what they run until they are replaced, and the page counts them.
    expect(page.locator("#countdown")).to_contain_text("treated engines still run: replace their deployments")
    assert _flag(own_site)["phase"] == "aborted"
    expect(page.locator("#timeline")).to_contain_text("stopped from the page")


def test_the_keyboard_alone_stops_a_rollout(own_site, look):
    page = look()
    own_site.sign_in(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.keyboard.press("Enter")
    summary = page.locator("#act-abort summary")
    for _ in range(20):
        page.keyboard.press("Tab")
        if summary.evaluate("one => one === document.activeElement"):
            break
    expect(summary).to_be_focused()
    assert summary.evaluate("one => getComputedStyle(one).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("errors")
    page.keyboard.press("Enter")
    expect(page.locator("#phase")).to_contain_text("Aborted")
    assert _flag(own_site)["last_change"] == {"action": "abort", "author": "ann", "reason": "errors"}


def test_whoever_comes_too_late_is_told_and_nothing_is_done(own_site, look, accessible):
    late, early = look(broken_is_fine=True), look()
    for page, name in ((late, "bob"), (early, "ann")):
        own_site.sign_in(page, name)
    _confirm(early, "kill", Reason="latency doubled")
    expect(early.locator("#phase")).to_contain_text("The kill switch is set")
    _confirm(late, "pause", Reason="looks odd")
    expect(late.get_by_role("heading", level=1)).to_contain_text("nothing was done")
    expect(late.locator("#stale")).to_contain_text("kill switch on by ann. “latency doubled”")
    accessible(late)
    assert _flag(own_site)["phase"] == "running"
    # What was typed is still there, and can be sent on the revision that is now known.
    expect(late.get_by_label("Reason")).to_have_value("looks odd")
    late.get_by_role("button", name="Pause: confirm").click()
    expect(late.locator("#phase")).to_contain_text("pause by bob")
    assert _flag(own_site)["phase"] == "paused"


def test_a_name_is_asked_for_before_everybody_gets_it(own_site, look):
    page = look(broken_is_fine=True)
    own_site.sign_in(page)
    _confirm(page, "default", Reason="why not", **{f"To confirm, type {KEY}": "something else"})
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"type the name of the flag: {KEY}")
    assert _flag(own_site)["revision"] == 2


def test_in_doubt_growing_is_not_offered_and_stopping_is(sites, look):
    page = look()
    sites("mismatch").sign_in(page)
    expect(page.locator("#act-default summary")).to_contain_text("not now: the verdict is invalid")
    page.locator("#act-default summary").click()
    expect(page.locator("#act-default form")).to_have_count(0)
    page.locator("#act-abort summary").click()
    expect(page.locator("#act-abort").get_by_role("button")).to_be_visible()
    expect(page.locator("#act-abort")).to_contain_text(f"kvflags rollout abort {KEY}")


def test_harm_is_stopped_by_the_collector_and_the_open_page_says_so(sites, look):
    page = look()
    page.goto(sites("regression").rollout)
    # A guard looks at most a minute after the collector starts.
    expect(page.locator("#phase")).to_contain_text("Aborted", timeout=180_000)
    expect(page.locator("#phase")).to_contain_text("by kvflags")
    expect(page.locator("#countdown")).to_contain_text("treated engines still run: replace their deployments")


@pytest.mark.parametrize("scripts", [True, False])
def test_what_was_said_is_changed_and_taken_back_from_the_page(own_site, look, accessible, scripts):
    page = look(java_script_enabled=scripts)
    own_site.sign_in(page)
    name = page.locator("#deployments tbody th a").first.inner_text()
    page.locator("#give summary").click()
    form = page.locator("#give")
    form.get_by_label("Deployment").fill(name)
    form.get_by_label("How it goes").select_option("negative")
    form.get_by_label("latency").check()
    form.get_by_label("What you saw").fill("p99 doubled")
    form.get_by_role("button").click()
    expect(page.locator("#feedback")).to_contain_text("p99 doubled")
    page.get_by_role("link", name="g1: change or withdraw").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("negative feedback g1, revision 1")
    if scripts:
        accessible(page)
    expect(page.locator("#edit .cli")).to_contain_text(f"kvflags feedback edit {KEY} g1 --negative")
    page.locator("#edit summary").click()
    page.locator("#edit").get_by_label("How it goes").select_option("positive")
    page.locator("#edit summary").click()
    _confirm_on(page, "edit", Reason="it was the network")
    expect(page.get_by_role("heading", level=1)).to_contain_text("positive feedback g1, revision 2")
    expect(page.locator("#revisions")).to_contain_text("it was the network")
    _confirm_on(page, "withdraw", Reason="wrong deployment")
    expect(page.locator("#withdrawn")).to_contain_text("Withdrawn by ann")
    with own_site.service.client() as client:
        [said] = client.get("flags", KEY, "feedback")["items"]
    assert (said["sign"], said["revision"], said["withdrawn"]) == ("positive", 3, True)
