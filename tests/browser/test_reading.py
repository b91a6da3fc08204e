# SPDX-License-Identifier: Apache-2.0
"""Each state of a rollout is told first, in words; nobody is shut out by their colours, window, keyboard or scripts."""

from __future__ import annotations

import pytest
from filled import KEY
from playwright.sync_api import expect

FLEETS = {"healthy": "Ready", "regression": "Regression", "mismatch": "Invalid", "waiting": "Waiting"}
_WINDOWS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"viewport": {"width": 360, "height": 740}},
}


@pytest.mark.parametrize(("fleet", "word"), FLEETS.items())
def test_the_verdict_is_the_first_thing_said(sites, look, picture, fleet, word):
    page = look(viewport={"width": 1280, "height": 900})
    page.goto(sites(fleet).rollout)
    expect(page.get_by_role("heading", level=1)).to_contain_text(word)
    expect(page).to_have_title(f"{KEY}: {word} · kvflags")
    top = page.get_by_role("heading", level=1).bounding_box()
    assert top is not None
    assert top["y"] < 200
    picture(page, f"rollout-{fleet}")


@pytest.mark.parametrize("fleet", FLEETS)
def test_the_four_questions_are_answered_without_scrolling(sites, look, fleet):
    page = look(viewport={"width": 1280, "height": 900})
    page.goto(sites(fleet).rollout)
    # Is it going well, how sure are we, what happens next, and how do I stop it.
    stop = ("#countdown",) if fleet == "regression" else ("#stop", "#act-abort summary")  # it was stopped already
    for answer in ("#banner .lead", "#why", "#sure", "#next", *stop, "#act-kill summary"):
        expect(page.locator(answer)).to_be_in_viewport()
        expect(page.locator(answer)).not_to_be_empty()


@pytest.mark.parametrize("window", _WINDOWS)
@pytest.mark.parametrize("fleet", FLEETS)
def test_axe_finds_nothing(sites, look, accessible, fleet, window):
    page = look(**_WINDOWS[window])
    for address in (sites(fleet).url, sites(fleet).rollout):
        page.goto(address)
        accessible(page)


@pytest.mark.parametrize("window", _WINDOWS)
def test_axe_finds_nothing_in_what_is_asked_for_seldom(sites, look, accessible, window):
    page = look(broken_is_fine=True, **_WINDOWS[window])
    for path in ("/rollouts/nothing", "/login", f"/rollouts/{KEY}?q=nobody"):
        page.goto(sites("waiting").url + path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        accessible(page)
    page.goto(sites("waiting").rollout)
    # All that is folded away.
    page.evaluate(
        "document.querySelectorAll('details').forEach(one => { one.removeAttribute('name'); one.open = true })"
    )
    accessible(page)


@pytest.mark.parametrize("window", _WINDOWS)
def test_the_pages_beside_a_rollout_are_open_to_all(sites, look, accessible, window):
    page = look(**_WINDOWS[window])
    page.goto(sites("waiting").rollout)
    deployment = page.locator("#deployments tbody th a").first.get_attribute("href")
    for path in (deployment, "/hub"):
        answer = page.goto(f"{sites('waiting').url}{path}")
        assert answer.status == 200
        accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_everything_is_there_without_scripts(sites, look):
    page = look(java_script_enabled=False)
    page.goto(sites("healthy").url)
    page.get_by_role("link", name=KEY).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Ready")
    parts = ("Ramp", "Data health", "Outcomes and guards", "Exposure over time", "Deployments and engines", "Timeline")
    for part in parts:
        expect(page.get_by_role("heading", name=part, exact=True)).to_be_visible()
    page.get_by_label("Name contains").fill("chat-0007")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#deployments tbody th")).to_have_count(1)


def test_the_address_is_the_view(sites, look):
    page = look()
    page.goto(sites("healthy").rollout)
    page.get_by_role("combobox", name="Arm").select_option("treatment")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**arm=treatment**")
    page.get_by_role("navigation", name="Outcome by stratum").get_by_role("link", name="inter token latency").click()
    expect(page.get_by_role("heading", name="By stratum: inter token latency")).to_be_visible()
    [total, found] = [int(text) for text in reversed(page.locator("#deployments .note").inner_text().split(" of "))]
    assert 0 < found < total
    again = look()
    again.goto(page.url)
    expect(again.locator("#deployments .note")).to_have_text(page.locator("#deployments .note").inner_text())
    expect(again.get_by_role("heading", name="By stratum: inter token latency")).to_be_visible()


@pytest.mark.parametrize("fleet", FLEETS)
def test_nothing_sticks_out_of_a_narrow_window(sites, look, fleet):
    page = look(viewport={"width": 360, "height": 740})
    for address in (sites(fleet).url, sites(fleet).rollout):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_thousand_deployments_weigh_less_than_half_a_megabyte(sites, look, figure):
    page = look()
    page.goto(sites("thousand").rollout, wait_until="load")
    expect(page.locator("#deployments .note")).to_contain_text("of 1,000")
    weight = page.evaluate(
        "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        ".reduce((sum, one) => sum + one.decodedBodySize, 0)"
    )
    assert 10_000 < weight < 500_000
    first = page.evaluate(
        "new Promise(done => new PerformanceObserver(list => done(list.getEntries()[0].startTime))"
        ".observe({type: 'paint', buffered: true}))"
    )
    figure(f"a thousand deployments over 90 days: {weight / 1000:.0f} kB, first painted after {first:.0f} ms")
