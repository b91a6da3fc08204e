# SPDX-License-Identifier: Apache-2.0
"""Lists of deployments, engines and alarms; health; what a busy or broken database looks like from outside."""

import threading

from kvflags_collector.api.context import State

AT = "2027-01-15T08:00:00.000000Z"


def test_deployments(api):
    api.create()
    api.pair()
    api.register("nameless", deployment=None)
    pin = {"generation": "g1", "epoch": 1, "variant": "off", "state": "pinned", "reason": "phase_draft"}
    status, answer = api("GET", "/api/v1/deployments")
    assert (status, answer["items"]) == (
        200,
        [
            {
                "deployment": "c/ns/a",
                "first_seen_at": AT,
                "last_seen_at": AT,
                "observed_at": AT,
                "observed_generation": "g1",
                "baseline_at": AT,
                "backends": ["FLASH_ATTN"],
                "roles": ["decode", "prefill"],
                "declared": None,
                "flags": [
                    {"flag": "clb", "eligible": True, "refusals": [], "waiting_for": None, "pins": [pin]}
                    | {"arm": None, "comparison": None, "opted": None}
                ],
                "live_engines": 2,
                "live_generations": {"g1": 2},
            },
            {"deployment": None, "live_engines": 1, "live_generations": {"g1": 1}},
        ],
    )


def test_engines(api):
    api.register(problems=["state_dir"], facts={"vllm": "0.32.0"})
    api.register("r2", role="decode", facts={"vllm": "0.32.0"})
    layout = {"requested": "BHLNC", "resolved": "LBHNC", "effective": False, "regions": 8, "layers": 8}
    api.beat(layout=layout, problems=["nixl_telemetry_disabled"], clock="2027-01-15T07:59:59Z", facts={})
    facts = dict.fromkeys(("nixl", "model_class", "architecture", "backend", "block_size"))
    facts |= dict.fromkeys(("kv_heads_per_rank", "kv_cache_dtype", "connector", "nested_in", "gpu"))
    facts |= {"transport": None, "runner": None, "isolation": "unknown", "lab": False, "vllm": "0.32.0"}
    facts |= {"tp": 1, "pp": 1, "dp": 1, "dcp": 1}
    common = {"deployment": "c/ns/a", "generation": "g1", "facts": facts, "kvflags": "1.0", "local": None}
    status, answer = api("GET", "/api/v1/engines")
    assert status == 200
    assert answer["items"][::-1] == [
        common
        | {
            "engine_id": "engine-r1",
            "registration_id": "r1",
            "role": "prefill",
            "state": "running",
            "live": True,
            "lease_until": "2027-01-15T08:01:30.000000Z",
            "layout": layout,
            "exercised": {"ok": 1, "errors": 0},
            "dropped": {"spans": 0, "events": 0},
            "ranks": 1,
            "skew_ms": -1000.0,
            "first_seen_at": AT,
            "last_seen_at": AT,
            "problems": ["nixl_telemetry_disabled", "state_dir"],
        },
        common
        | {
            "engine_id": None,
            "registration_id": "r2",
            "role": "decode",
            "state": "starting",
            "live": True,
            "lease_until": "2027-01-15T08:30:00.000000Z",
            "layout": dict.fromkeys(layout),
            "exercised": {"ok": 0, "errors": 0},
            "dropped": {"spans": 0, "events": 0},
            "ranks": None,
            "skew_ms": None,
            "first_seen_at": AT,
            "last_seen_at": AT,
            "problems": [],
        },
    ]


def test_a_mixed_generation_is_an_alarm_and_feedback(api):
    api.create()
    api.pair()
    api.register("forced", role="decode", local={"source": "KVFLAGS_FORCE", "variant": "on"})
    api.beat("forced", layout={"resolved": "BHLNC"})
    (alarm,) = api("GET", "/api/v1/alarms")[1]["items"]
    assert (alarm["kind"], alarm["deployment"], alarm["epoch"], alarm["ended_at"]) == (
        "mixed_generation",
        "c/ns/a",
        1,
        None,
    )
    assert api("GET", "/api/v1/flags/clb/status")[1]["alarms"] == [alarm]
    (given,) = api("GET", "/api/v1/flags/clb/feedback")[1]["items"]
    assert (given["sign"], given["source"], given["tags"]) == ("negative", "measured", ["mixed_generation"])


def test_the_report_and_the_pages_are_there(api):
    api.create()
    status, report = api("GET", "/api/v1/flags/clb/report")
    assert (status, report["schema"]) == (200, "kvflags.report/1")
    assert api.http.get("/").status_code == 200


def test_health(api):
    assert api("GET", "/livez") == (200, {"status": "ok"})
    assert api("GET", "/readyz") == (200, {"status": "ok"})


def test_not_ready_without_its_threads(api):
    api.app.state.kvflags = State(db=api.db, alive=lambda: False)
    status, answer = api("GET", "/readyz")
    assert (status, answer["error"]["message"]) == (503, "a background thread has ended")
    assert api("GET", "/livez")[0] == 200


def test_a_registration_waits_for_its_turn_as_long_as_its_engine_does(api):
    api.create()
    before = api.dump()
    held, release = threading.Event(), threading.Event()

    def hold():
        with api.db.write():
            held.set()
            release.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    response = api.http.post("/api/v1/engines/register", json={"registration_id": "r", "deployment": "d"})
    release.set()
    thread.join()
    assert (response.status_code, response.json()["error"]["code"]) == (503, "database_busy")
    assert response.headers["retry-after"] == "1"
    assert api.dump() == before


def test_a_pin_that_would_turn_on_too_late_is_rolled_back(api):
    api.create()
    api.pair()
    api.aim(percent=100)
    before = api.dump()
    slow = threading.Event()

    def clock():
        # The clock is read inside the transaction: a stand-in for a disk that takes its time.
        slow.wait(1.1)
        return api.now

    api.app.state.kvflags = State(db=api.db, clock=clock)
    status, answer = api.register("late", generation="g2")
    assert (status, answer["error"]["code"]) == (503, "overloaded")
    assert api.dump() == before
    # What is off can come late, nobody will disagree with it; and so can a pin that peers follow already.
    assert api.register("off", generation="g1", role="decode")[0] == 200
    api.app.state.kvflags = State(db=api.db, clock=lambda: api.now)
    api.register("first", generation="g2")
    api.app.state.kvflags = State(db=api.db, clock=clock)
    status, answer = api.register("joiner", generation="g2")
    assert (status, answer["decisions"][0]["variant"]) == (200, "on")


def test_our_own_failure_is_an_envelope_too(api):
    api.app.state.kvflags = State(db=None)
    assert api("GET", "/api/v1/alarms") == (
        500,
        {"error": {"code": "internal", "message": "the collector failed", "hint": "see its log"}},
    )
