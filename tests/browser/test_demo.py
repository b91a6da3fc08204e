# SPDX-License-Identifier: Apache-2.0
"""The pages over what real engines sent: the database that the demo left, served again.

`KVFLAGS_DEMO_FOLDER=DIR make demo demo-pages` makes it and reads it, and so does CI.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from filled import KEY
from playwright.sync_api import expect

from kvflags_cli.demo.pair import free_port
from kvflags_cli.demo.service import Service

BLUE, GREEN, MIXED = (f"demo/demo/{name}" for name in ("blue", "green", "mixed"))


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Service]:
    """A collector on a copy, so that what was left can be read as often as one likes."""
    left = Path(os.environ.get("KVFLAGS_DEMO_FOLDER", "/nonexistent"), "kvflags.db")
    if not left.exists():
        pytest.skip("the demo left no database: KVFLAGS_DEMO_FOLDER=DIR make demo demo-pages")
    folder = tmp_path_factory.mktemp("demo")
    for file in left.parent.glob(f"{left.name}*"):
        shutil.copy(file, folder)
    service = Service(folder / left.name, folder / "log", port=free_port())
    service.start()
    yield service
    service.stop()


def test_the_rollout_says_where_it_stands_and_what_went_wrong(service, look, accessible):
    page = look(viewport={"width": 1280, "height": 900})
    page.goto(service.url)
    page.get_by_role("link", name=KEY).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Waiting")
    expect(page.locator("#why")).to_contain_text("1 treated deployment in the comparison; 8 are needed.")
    expect(page.locator("#alarms")).to_contain_text(f"{MIXED} r2: engines that may be paired hold different layouts")
    # What failed was forced, and is in no arm.
    expect(page.locator("#errors")).to_contain_text("No transfer failed in either arm.")
    expect(page.locator("#feedback")).to_contain_text("mixed_generation")
    accessible(page)


def test_each_arm_and_what_it_did_is_there_without_scripts(service, look):
    page = look(java_script_enabled=False)
    page.goto(f"{service.url}/rollouts/{KEY}")
    for name in (BLUE, GREEN, MIXED):
        expect(page.locator("#deployments tbody").get_by_role("link", name=name, exact=True).first).to_be_visible()
    for row in ("treatment 1 200 0", "control 1 200 0", "not compared 3 38 6"):
        expect(page.locator("#arms").get_by_role("row", name=re.compile(f"^{row} "))).to_be_visible()


def test_a_treated_deployment_shows_its_generations_and_its_layout(service, look, accessible):
    page = look()
    page.goto(f"{service.url}/deployments/{GREEN}")
    expect(page.get_by_role("heading", level=1)).to_contain_text(GREEN)
    for says in ("r1", "r2", "LBHNC", "BHLNC"):
        expect(page.locator("main")).to_contain_text(says)
    accessible(page)


def test_the_twin_tells_what_the_report_tells(service):
    with httpx.Client(base_url=service.url, trust_env=False, timeout=60) as http:
        page, report = (http.get(path).json() for path in (f"/rollouts/{KEY}.json", f"/api/v1/flags/{KEY}/report"))
    assert page["banner"]["state"] == report["verdict"]["state"] == "waiting"
    assert (page["feedback"]["positive"], page["feedback"]["negative"]) == (0, 1)
