# SPDX-License-Identifier: Apache-2.0
"""The report, whole: what it says of a rollout as the ledger and the spans have it."""

from __future__ import annotations

import json

import pytest
from pydantic import TypeAdapter

from kvflags.errors import NotFound
from kvflags_collector.feedback import report
from kvflags_collector.feedback.document import Report
from kvflags_collector.store.events import insert_events
from kvflags_collector.store.rollup_tables import rollups_minute

NOTHING = {
    "transfers": None,
    "failed": None,
    "errors": {},
    "bytes": None,
    "descriptors_per_transfer": None,
    "blocks_per_transfer": None,
    "post_ms": {"mean": None, "p50": None, "p99": None},
    "transfer_ms": {"mean": None, "p50": None, "p99": None},
}

STRATUM = "FLASH_ATTN, gqa, vLLM 0.32, 4 heads, block 16"
SIGNS = {
    "measured": {"positive": 0, "negative": 0, "neutral": 0, "insufficient": 1},
    "given": {"positive": 0, "negative": 0},
}
NEEDED = (
    ("too_few_deployments", None),
    ("too_few_deployments", None),
    ("too_short", "2027-01-09"),
    ("no_outcomes", None),
)


def _figures(transfers: int, descriptors: float) -> dict[str, object]:
    return {
        "transfers": transfers,
        "failed": 0,
        "errors": {},
        "bytes": transfers << 20,
        "descriptors_per_transfer": descriptors,
        "blocks_per_transfer": 8.0,
        "post_ms": {"mean": 0.1, "p50": pytest.approx(0.1, rel=0.0109), "p99": pytest.approx(0.1, rel=0.0109)},
        "transfer_ms": {"mean": 2.0, "p50": pytest.approx(2, rel=0.0109), "p99": pytest.approx(2, rel=0.0109)},
    }


def _row(deployment: str, generation: str, **more: object) -> dict[str, object]:
    off = {"requested": "LBHNC", "resolved": "LBHNC", "regions": 8, "layers": 8, "effective": False}
    row = {
        "deployment": deployment,
        "generation": generation,
        "epoch": 1,
        "latest": True,
        "state": "pinned",
        "arm": "control",
        "comparison": "included",
        "excluded_because": None,
        "variant": "off",
        **_figures(10, 8.0),
        "layout": off,
        "exercised": {"ok": 2, "errors": 0},
        "refusals": [],
        "problems": [],
        "dropped": 0,
        "verdict": None,
    }
    return row | more


def _first(deployment: str) -> dict[str, object]:
    past = {"latest": False, "arm": None, "comparison": "excluded", "excluded_because": "phase_draft"}
    return _row(deployment, "r1", **past, **_figures(2, 8.0))


def test_the_whole_report_of_two_arms(compared):
    found = report.build(compared.db, compared.key, compared.now)
    [treated] = {row["deployment"] for row in found["deployments"] if row["arm"] == "treatment"}
    on = {"requested": "BHLNC", "resolved": "BHLNC", "regions": 1, "layers": 8, "effective": True}
    treatment = {"arm": "treatment", "variant": "on", "layout": on, "verdict": "insufficient", **_figures(10, 1.0)}
    assert found == {
        "schema": "kvflags.report/1",
        "flag": {
            "key": "cross-layer-blocks",
            "feature": "cross_layer_blocks",
            "phase": "running",
            "revision": 2,
            "target": {"share": None, "count": 1},
            "expires": None,
            "expired": False,
        },
        "generated_at": "2027-01-02T12:01:01.000000Z",
        "fresh_as_of": "2027-01-02T12:01:01.000000Z",
        "verdict": {
            "state": "waiting",
            "reason": "too_few_deployments",
            "why": [
                "1 treated deployment in the comparison; 8 are needed.",
                "1 control deployment in the comparison; 8 are needed.",
                "0.0 days with 25% or more treated; 7 are needed.",
                "No outcomes were received (time to first token, inter-token latency): transfers alone decide nothing.",
            ],
            "next": "Raise the percentage, or enrol more deployments.",
            "scope": [],
            "returned": [],
            "warnings": [],
            "invalid_strata": {},
        },
        "as_of": None,
        "unknown": [],
        "evidence": {
            "deployments": {"treatment": 1, "control": 1},
            "excluded": 0,
            "events": {"treatment": 0, "control": 0},
            "unmatched": 0,
            "left_out": {},
            "transfers": 20,
            "days": 0.0,
            "since": None,
            "releases": {"vllm": ["0.32.0"], "nixl": ["1.5.1"], "gpu": []},
        },
        "outcomes": [],
        "strata": [
            {
                "name": STRATUM,
                "treated": 0,
                "control": 0,
                "ready": False,
                "verdict": "insufficient",
                "more": 8,
                "outcomes": [],
                "signs": SIGNS,
            }
        ],
        "signs": SIGNS,
        "errors": [],
        "coverage": {"deployments": 2, "eligible": 2, "share": 1.0, "refusals": []},
        "restart_cost": None,
        "needed": [
            {"reason": reason, "says": says, "more": None, "about": about}
            for (reason, about), says in zip(NEEDED, found["verdict"]["why"], strict=True)
        ],
        "criteria": [],
        "predicate": None,
        "way_back": found["way_back"],
        "reproduce": "kvflags report cross-layer-blocks --as-of 2027-01-02T12:01:01.000000Z",
        "arms": [
            {"arm": "treatment", "deployments": 1, **_figures(10, 1.0)},
            {"arm": "control", "deployments": 1, **_figures(10, 8.0)},
            {"arm": None, "deployments": 2, **_figures(4, 8.0)},
        ],
        "deployments": [
            row
            for name in ("c/ns/a", "c/ns/b")
            for row in (_first(name), _row(name, "r2", **(treatment if name == treated else {})))
        ],
        "alarms": [],
        "feedback": {"positive": 0, "negative": 0, "withdrawn": 0, "items": []},
        "data_health": {
            "effective_share": 1.0,
            "mixed_generations": 0,
            "dropped_spans": 0,
            "expired": 0,
            "incomplete": 0,
            "late": 0,
            "canaries": {},
        },
    }
    assert json.loads(json.dumps(found)) == found
    assert TypeAdapter(Report).validate_python(found) == found, "a field that the schema does not have"


def test_a_flag_without_deployments_has_nulls_and_no_numbers(scene):
    found = report.build(scene.db, scene.key, scene.now)
    assert found["arms"] == [{"arm": arm, "deployments": 0, **NOTHING} for arm in ("treatment", "control")]
    assert (found["deployments"], found["data_health"]["effective_share"]) == ([], None)
    assert (found["verdict"]["state"], found["verdict"]["reason"]) == ("waiting", "not_running")


def test_an_unknown_flag_is_not_found(scene):
    with pytest.raises(NotFound):
        report.build(scene.db, "nothing", scene.now)


def test_a_preference_that_vllm_dropped_makes_the_verdict_invalid(scene):
    scene.starts("c/ns/a", "r1")
    scene.aim(percent=100)
    dropped = {"requested": "BHLNC", "resolved": "LBHNC", "regions": 8, "layers": 8, "effective": False}
    assert scene.starts("c/ns/a", "r2", layout=dropped)["variant"] == "on"
    found = report.build(scene.db, scene.key, scene.now)
    assert (found["verdict"]["state"], found["verdict"]["reason"]) == ("invalid", "not_effective")
    assert found["verdict"]["why"] == [
        "The layout took hold in 0 of 1 treated deployment (0%); 90% are needed.",
        "c/ns/a r2: asked for BHLNC, vLLM settled on LBHNC, 8 regions for 8 layers.",
    ]
    assert found["data_health"]["effective_share"] == 0.0


def test_a_mixed_generation_outside_the_comparison_is_an_alarm_and_feedback_only(compared):
    compared.starts("c/ns/m", "r1")
    compared.passes(1)
    assert compared.engine("c/ns/m", "r2", "prefill")["variant"] == "off"
    forced = {"source": "KVFLAGS_FORCE", "variant": "on"}
    other = {"requested": "BHLNC", "resolved": "BHLNC", "regions": 1, "layers": 8, "effective": True}
    compared.engine("c/ns/m", "r2", "decode", local=forced, layout=other)
    failed = {"status": 2, "error_type": "handshake_failed", "bytes": None, "descriptors": None, "post_ns": None}
    # A forced engine has no decision, hence no epoch: its spans count for the generation it belongs to.
    compared.transfers("c/ns/m", "r2", 5, epoch=0, **failed)
    found = report.build(compared.db, compared.key, compared.now)
    [row] = [row for row in found["deployments"] if (row["deployment"], row["generation"]) == ("c/ns/m", "r2")]
    assert (row["comparison"], row["excluded_because"], row["layout"]) == (
        "excluded",
        "forced",
        {
            "requested": "BHLNC and LBHNC",
            "resolved": "BHLNC and LBHNC",
            "regions": None,
            "layers": 8,
            "effective": False,
        },
    )
    assert {name: row[name] for name in NOTHING} == NOTHING | {
        "transfers": 5,
        "failed": 5,
        "errors": {"handshake_failed": 5},
    }
    assert found["verdict"]["state"] == "waiting"
    [alarm] = found["alarms"]
    assert alarm | {"says": ""} == {
        "kind": "mixed_generation",
        "deployment": "c/ns/m",
        "generation": "r2",
        "epoch": 1,
        "says": "",
        "first_at": "2027-01-02T12:01:02.000000Z",
        "ended_at": None,
    }
    assert (found["feedback"]["negative"], found["feedback"]["positive"]) == (1, 0)
    assert found["data_health"]["mixed_generations"] == 1


def test_a_mixed_generation_in_the_comparison_is_invalid(compared):
    other = {"requested": "LBHNC", "resolved": "LBHNC", "regions": 8, "layers": 8, "effective": False}
    rows = report.build(compared.db, compared.key, compared.now)["deployments"]
    [treated] = [row["deployment"] for row in rows if row["arm"] == "treatment"]
    compared.engine(treated, "r2", "prefill", registration_id="second", layout=other)
    found = report.build(compared.db, compared.key, compared.now)["verdict"]
    assert (found["state"], found["reason"]) == ("invalid", "mixed_generation")


def test_disabled_telemetry_in_the_comparison_is_invalid(compared):
    rows = report.build(compared.db, compared.key, compared.now)["deployments"]
    [treated] = [row["deployment"] for row in rows if row["arm"] == "treatment"]
    compared.engine(treated, "r2", "prefill", registration_id="second", problems=["nixl_telemetry_disabled"])
    found = report.build(compared.db, compared.key, compared.now)
    assert (found["verdict"]["state"], found["verdict"]["reason"]) == ("invalid", "telemetry_disabled")
    [row] = [row for row in found["deployments"] if row["arm"] == "treatment"]
    assert row["problems"] == ["nixl_telemetry_disabled"]


def test_refusals_and_drops_are_told_of_each_generation(scene):
    scene.starts("c/ns/a", "r1", facts={"kv_heads_per_rank": 1}, dropped={"spans": 3, "events": 0})
    found = report.build(scene.db, scene.key, scene.now)
    [row] = found["deployments"]
    assert [refusal["code"] for refusal in row["refusals"]] == ["one_kv_head_per_rank"]
    assert row["refusals"][0]["says"]
    assert (row["dropped"], found["data_health"]["dropped_spans"]) == (6, 6)


def test_effective_comes_from_spans_where_heartbeats_cannot_tell(scene):
    scene.starts("c/ns/a", "r1")
    scene.aim(percent=100)
    shape = {"requested": "BHLNC", "resolved": "BHLNC", "regions": 1, "layers": 8, "effective": None}
    scene.starts("c/ns/a", "r2", layout=shape)
    assert report.build(scene.db, scene.key, scene.now)["data_health"]["effective_share"] is None
    scene.transfers("c/ns/a", "r2", 2, effective=True)
    assert report.build(scene.db, scene.key, scene.now)["data_health"]["effective_share"] == 1.0
    scene.transfers("c/ns/a", "r2", 1, effective=False)
    assert report.build(scene.db, scene.key, scene.now)["data_health"]["effective_share"] == 0.0


def _event(scene, name, engine, rank, **attributes):
    row = {"time_us": scene.now, "name": name, "engine_id": engine, "rank": rank, "attributes": attributes}
    where = {"deployment": "c/ns/a", "generation": "r1", "epoch": 1, "received_us": scene.now}
    with scene.db.write() as conn:
        insert_events(conn, [row | where | {"fingerprint": repr(row).encode()[-16:]}])


def test_effective_comes_from_the_other_ranks_where_rank_0_cannot_tell(scene):
    layout = {"requested": "LBHNC", "resolved": "LBHNC", "regions": 1, "layers": 8, "effective": None}
    for role in ("prefill", "decode"):
        scene.engine("c/ns/a", "r1", role, layout=layout, ranks=3)
    for number, (role, rank) in enumerate([("prefill", 1), ("prefill", 2), ("decode", 1)]):
        [row] = report.build(scene.db, scene.key, scene.now)["deployments"]
        assert row["layout"]["effective"] is None
        scene.passes(1)
        fact = {"kvflags.effective": True, "kvflags.rank": rank}
        _event(scene, "kvflags.engine.fact", f"c/ns/a-r1-{role}", rank, **fact, number=number)
    _event(scene, "kvflags.engine.fact", "c/ns/a-r1-decode", 2, **{"kvflags.effective": True})
    [row] = report.build(scene.db, scene.key, scene.now)["deployments"]
    assert row["layout"]["effective"] is True
    scene.passes(1)
    _event(scene, "kvflags.engine.fact", "c/ns/a-r1-decode", 2, **{"kvflags.effective": False})
    [row] = report.build(scene.db, scene.key, scene.now)["deployments"]
    assert row["layout"]["effective"] is False


def test_drops_of_all_ranks_and_what_expired_are_counted(scene):
    scene.starts("c/ns/a", "r1", dropped={"spans": 3, "events": 0})
    for rank in (0, 1, 2):
        _event(scene, "kvflags.drops", "c/ns/a-r1-decode", rank, **{"kvflags.dropped.spans": 10 + rank})
    _event(scene, "kvflags.transfer.expired", "c/ns/a-r1-prefill", 0, **{"kvflags.expired.requests": 4})
    found = report.build(scene.db, scene.key, scene.now)
    # Rank 0's own are in the heartbeats, 3 of each engine.
    assert (found["data_health"]["dropped_spans"], found["data_health"]["expired"]) == (2 * 3 + 11 + 12, 4)


def test_what_was_transferred_without_a_decision_has_rows_of_its_own(scene):
    scene.transfers("c/ns/z", "r0", 1, epoch=0)
    scene.transfers("", "", 1, epoch=0)
    rows = report.build(scene.db, scene.key, scene.now)["deployments"]
    assert [(row["deployment"], row["epoch"], row["excluded_because"], row["transfers"]) for row in rows] == [
        (None, None, "unidentified", 1),
        ("c/ns/z", None, "not_decided", 1),
    ]


def test_days_count_from_when_the_share_was_reached(scene):
    scene.aim(percent=10)
    scene.passes(86_400)
    scene.aim(percent=25)
    scene.passes(3 * 86_400)
    scene.aim(percent=50)
    scene.passes(86_400)
    why = report.build(scene.db, scene.key, scene.now)["verdict"]["why"]
    assert "4.0 days with 25% or more treated; 7 are needed." in why


def test_what_was_not_rolled_up_in_time_shows(compared, monkeypatch):
    monkeypatch.setattr(report, "_FOLD_S", 0.0)
    found = report.build(compared.db, compared.key, compared.now)
    assert found["fresh_as_of"] == "2027-01-02T12:00:00.000000Z"
    with compared.db.read() as conn:
        assert conn.execute(rollups_minute.select()).all() == []
