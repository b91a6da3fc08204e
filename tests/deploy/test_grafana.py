# SPDX-License-Identifier: Apache-2.0
"""The dashboards are files that Grafana can provision: whole, told apart, and free of what one machine knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

GRAFANA = Path(__file__).parents[2] / "deploy" / "grafana"
BOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_whole(path):
    board = json.loads(path.read_text())
    assert (board["uid"], "id" in board) == (path.stem, False)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    names = {one["name"] for one in board["templating"]["list"]}
    assert "datasource" in names
    for panel in board["panels"]:
        assert panel["title"]
        for one in (panel, *panel["targets"]):
            assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
    places = {
        (p["gridPos"]["x"] + dx, p["gridPos"]["y"] + dy)
        for p in board["panels"]
        for dx in range(p["gridPos"]["w"])
        for dy in range(p["gridPos"]["h"])
    }
    assert len(places) == sum(p["gridPos"]["w"] * p["gridPos"]["h"] for p in board["panels"])


def test_what_is_provisioned_is_what_is_here():
    [source] = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "kvflags.yml").read_text())["datasources"]
    [provider] = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "kvflags.yml").read_text())["providers"]
    assert (source["type"], provider["type"]) == ("prometheus", "file")
    # The guide says to copy them there.
    guide = (GRAFANA.parents[1] / "docs" / "operator-guide.md").read_text()
    assert provider["options"]["path"] in guide
    assert [path.stem for path in BOARDS] == ["kvflags-collector", "kvflags-rollout"]


def test_a_rollouts_dashboard_marks_what_was_decided_when():
    board = json.loads((GRAFANA / "dashboards" / "kvflags-rollout.json").read_text())
    assert [one["name"] for one in board["annotations"]["list"]] == ["Changes of the flag", "Changes of the verdict"]
