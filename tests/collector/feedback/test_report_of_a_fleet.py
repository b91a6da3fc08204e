# SPDX-License-Identifier: Apache-2.0
"""The report of a fleet that was replaced and measured: what it adds to a verdict, and its public schema."""

from __future__ import annotations

import json
from math import log
from pathlib import Path

import jsonschema
import pytest
from pydantic import TypeAdapter
from stored_fleet import DAY_US, Fleet

from kvflags.telemetry.instruments import InstrumentName as Name
from kvflags_collector.feedback import given
from kvflags_collector.feedback.document import Report

SCHEMA = Path(__file__).parents[3] / "docs" / "reference" / "report.schema.json"
STRATUM = "FLASH_ATTN, gqa, vLLM 0.32, 4 heads, block 16"


def _measured(scene):
    fleet = Fleet(scene)
    fleet.store({Name.TTFT: -0.3}, failed=lambda name, number: 1 if name == fleet.names[0] and number == 168 else 0)
    fleet.judge_at(4.2)
    return fleet


@pytest.fixture
def fleet(copied):
    """20 deployments, half of them treated, 30 % faster to their first token."""
    return copied(_measured)


def test_it_fits_the_public_schema_and_has_no_field_beyond(fleet):
    found = fleet.report()
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    assert TypeAdapter(Report).validate_python(found) == found


def test_levels_stand_beside_the_change_that_decides(fleet):
    [ttft] = [one for one in fleet.report()["outcomes"] if one["outcome"] == "time_to_first_token"]
    assert ttft["unit"] == "s"
    assert ttft["levels"]["control"] == pytest.approx(0.4, rel=0.05)
    assert ttft["levels"]["treatment"] == pytest.approx(0.28, rel=0.05)
    ratio = log(ttft["levels"]["treatment"] / ttft["levels"]["control"])
    assert ratio == pytest.approx(log(1 + ttft["change"]), abs=0.05)


def test_signals_of_a_stratum_count_what_was_measured_and_what_was_said(fleet):
    scene = fleet.scene
    treated = next(name for name in fleet.names if fleet.treated(name))
    with scene.db.write() as conn:
        said = {"sign": "negative", "tags": ["latency"], "comment": "p99 up"}
        given.give(conn, scene.key, treated, said, author="ann", now=scene.now)
    found = fleet.report()
    [stratum] = found["strata"]
    # 10 controls are fewer than a verdict on one deployment needs.
    measured = {"positive": 0, "negative": 0, "neutral": 0, "insufficient": 10}
    assert stratum["signs"] == found["signs"] == {"measured": measured, "given": {"positive": 0, "negative": 1}}
    assert (stratum["name"], stratum["verdict"], stratum["more"]) == (STRATUM, "positive", None)


def test_what_a_default_would_need_is_named_once_it_is_ready(fleet):
    assert fleet.report()["predicate"] is None
    fleet.scene.now = fleet.event_us + 10 * DAY_US
    found = fleet.report()
    assert (found["verdict"]["state"], found["needed"]) == ("ready", [])
    asked = found["predicate"]
    assert asked["layout"] == "BHLNC"
    assert asked["where"] == [
        {"backend": "FLASH_ATTN", "model_class": "gqa", "vllm": "0.32", "kv_heads_per_rank": 4, "block_size": 16}
    ]
    assert asked["says"].startswith("Ask for BHLNC where backend FLASH_ATTN, model class gqa, vLLM 0.32, 4 KV heads")
    unless = {rule["code"] for rule in asked["unless"]}
    assert {"sparse_mla", "one_kv_head_per_rank", "pipeline_parallel_asserts"} <= unless, "what is unsafe or in vain"
    assert {"isolation", "release"}.isdisjoint(unless), "what is only not stated or not known"


def test_what_is_missing_says_about_when(fleet):
    found = fleet.report()
    [wait] = [one for one in found["needed"] if one["reason"] == "too_short"]
    assert (found["verdict"]["state"], wait["about"]) == ("waiting", "2027-01-09")


def test_the_restart_cost_is_that_of_both_arms(fleet):
    cost = fleet.report()["restart_cost"]
    # Hour 168 is the one of the replacement: neither before nor after.
    assert (cost["events"], cost["minutes"]) == (20, 0.0)
    assert (cost["failed"], cost["transfers"]) == (1, 20 * 100)
