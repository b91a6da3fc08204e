# SPDX-License-Identifier: Apache-2.0
"""Six organisations, each with a collector of its own, send to one hub by the command line and over real HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from bundles import key_of
from databases import opened
from listening import listening
from stored_fleet import Fleet

from kvflags.signatures import encoded
from kvflags.telemetry.instruments import InstrumentName as Name
from kvflags_collector.app import create_app
from kvflags_collector.settings import Settings
from kvflags_collector.store.control_tables import collector_keys

ORGANISATIONS = {f"org-{number}": -0.30 + number / 100 for number in range(6)}
PAGE = Path(__file__).parents[3] / "docs" / "hub.md"
_FACTS = {"gpu": "NVIDIA H100 80GB HBM3", "architecture": "LlamaForCausalLM"}


def kvflags(folder: Path, *arguments: str, **environ: str) -> Any:
    """`kvflags ... --json` as a person of the organisation runs it: the document's data."""
    own = {"HOME": str(folder), "PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = subprocess.run(
        [sys.executable, "-m", "kvflags_cli", *arguments, "--json"],
        capture_output=True,
        text=True,
        env=own | environ,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["data"]


@pytest.fixture
def organisation(on_sqlite, scene_on, tmp_path):
    """organisation(name): meanwhile its collector runs, whose flag was judged; (its address, a folder with the key)."""

    @contextmanager
    def running(name: str) -> Iterator[tuple[str, Path]]:
        with closing(opened(on_sqlite.new())) as db:
            with db.write() as conn:
                conn.execute(collector_keys.insert().values(private_key=key_of(f"collector of {name}"), created_us=0))
            fleet = Fleet(scene_on(db), 16, facts_of=lambda _: _FACTS)
            fleet.store({Name.TTFT: ORGANISATIONS[name]})
            fleet.judge_at(10)
            folder = tmp_path / name
            file = folder / ".config" / "kvflags" / "organisation.key"
            file.parent.mkdir(parents=True)
            file.touch(0o600)
            file.write_text(encoded(key_of(name)) + "\n")
            with listening(create_app(Settings(db=db.url), db, clock=lambda: fleet.scene.now)) as url:
                yield url, folder

    return running


@pytest.fixture
def hub(on_sqlite) -> Iterator[str]:
    """Its address; eleven days after the fleets began."""
    with closing(opened(on_sqlite.new())) as db:
        app = create_app(Settings(db=db.url, hub=True), db, clock=lambda: (1_798_891_200 + 11 * 86_400) * 1_000_000)
        with listening(app) as url:
            yield url


def test_six_fleets_tell_a_hub_and_it_says_for_which_stratum_it_is_ready(organisation, hub, tmp_path):
    sent = {}
    for name in ORGANISATIONS:
        with organisation(name) as (url, folder):
            submit = ("feedback", "submit", "cross-layer-blocks", "--to", hub)
            sent[name] = folder, kvflags(folder, *submit, KVFLAGS_COLLECTOR_URL=url, KVFLAGS_SHARE="on")
        assert sent[name][1]["state"] == "pending"
        admit = f"{hub}/api/v1/hub/organisations/{sent[name][1]['organisation']}/admit"
        assert httpx.post(admit, json={"author": "ann"}, trust_env=False).status_code == 200
    report = ("hub", "report", "cross-layer-blocks", "--collector", hub)
    found = kvflags(tmp_path, *report)
    assert (found["verdict"]["state"], found["verdict"]["scope"]) == (
        "ready",
        ["FLASH_ATTN, H100, gqa, vLLM 0.32, 4 heads, block 16"],
    )
    assert (found["organisations"], found["treated"], found["control"]) == (6, 48, 48)
    assert found["architectures"] == {"LlamaForCausalLM": 96}
    ttft = next(one for one in found["outcomes"] if one["outcome"] == "time_to_first_token")
    assert ttft["change"] == pytest.approx(-0.275, abs=0.02)
    folder, receipt = sent["org-0"]
    assert kvflags(folder, "feedback", "revoke", receipt["receipt"], "--to", hub)["revoked"] == 1
    assert kvflags(tmp_path, *report)["organisations"] == 5


def test_the_page_about_hubs_shows_a_bundle_as_it_is_made(organisation):
    with organisation("org-0") as (url, folder):
        made = kvflags(folder, "feedback", "bundle", "cross-layer-blocks", "--show", KVFLAGS_COLLECTOR_URL=url)
    shown = f"<!-- bundle: begin -->\n```json\n{json.dumps(made, indent=2)}\n```\n<!-- bundle: end -->"
    assert shown in PAGE.read_text(), f"put this into {PAGE.name}:\n{shown}"
