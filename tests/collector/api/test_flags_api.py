# SPDX-License-Identifier: Apache-2.0
"""The loop over HTTP, answer by answer, and that bad input changes nothing."""

import pytest

CHANGE = {"author": "ann", "reason": "because"}
STARTED = [
    {"field": "phase", "was": "draft", "now": "running"},
    {"field": "target", "was": None, "now": {"share": 10_000, "count": None}},
]
SINCE = {"revision": 2, "action": "set_target", "author": "ann", "reason": "go"}
AT = "2027-01-15T08:00:00.000000Z"


def flag(api, **more):
    found = api("GET", "/api/v1/flags/clb")[1]
    return found | more


def test_a_flag_is_created_and_shown(api):
    status, made = api.create()
    assert status == 201
    salts = {name: made.pop(name) for name in ("salt_enrolment", "salt_arm")}
    assert len(set(salts.values())) == 2
    assert made == {
        "key": "clb",
        "feature": "cross_layer_blocks",
        "revision": 1,
        "phase": "draft",
        "target": None,
        "overrides": {},
        "enrolment": 100_000,
        "holdback": 0,
        "kill_switch": False,
        "baseline_s": 0,
        "quiet_s": 0,
        "labels": {},
        "vllm": "",
        "held_back": [],
        "rolled_back": [],
        "criteria": [],
        "expires": None,
        "expired": False,
        "ramp": None,
        "default_since_us": None,
        "hash_version": "flagd-v2",
        "created_at": AT,
        "updated_at": AT,
        "last_change": {"action": "create", "author": "ann", "reason": "try it"},
    }
    assert api("GET", "/api/v1/flags/clb") == (200, made | salts)
    assert api("GET", "/api/v1/flags") == (200, {"items": [made | salts], "next": None})


def test_from_observation_to_treatment(api):
    api.create()
    assert [told["reason"] for told in api.pair()] == ["phase_draft"] * 2
    status, aimed = api.aim(count=1)
    assert (status, aimed["phase"], aimed["target"]) == (200, "running", {"share": None, "count": 1})
    first, second = api.pair("g2")
    assert first == second
    assert (first["variant"], first["arm"]) == ("on", "treatment")
    status, answer = api("GET", "/api/v1/flags/clb/status")
    assert status == 200
    assert answer["realised"] == {"eligible": 1, "enrolled": 1, "treated": 1, "control": 0, "share": 1.0}
    status, why = api("GET", "/api/v1/flags/clb/explain?deployment=c/ns/a")
    assert (status, why["won"], why["generation"], why["pin"]["variant"]) == (200, "pin", "g2", "on")
    assert api("GET", "/api/v1/flags/clb/explain?deployment=c/ns/a&generation=g1")[1]["pin"]["variant"] == "off"


def test_kill_switch_abort_and_start(api):
    api.create()
    api.pair()
    api.aim(percent=100)
    api.pair("g2")
    status, killed = api("PUT", "/api/v1/flags/clb/kill-switch", {"on": True, **CHANGE})
    assert (status, killed["kill_switch"], killed["revision"]) == (200, True, 3)
    assert api.beat("g2-prefill")[1] == {
        "revision": 3,
        "condemned": ["clb"],
        "pending": {"replace": 2, "live": 2},
        "server_time": AT,
    }
    assert api("PUT", "/api/v1/flags/clb/kill-switch", {"on": False, **CHANGE})[1]["revision"] == 4
    assert api("POST", "/api/v1/flags/clb/abort", CHANGE)[1]["phase"] == "aborted"
    assert api("POST", "/api/v1/flags/clb/abort", CHANGE)[1]["revision"] == 5
    assert api.aim(percent=1)[1]["error"]["code"] == "wrong_phase"
    assert api("POST", "/api/v1/flags/clb/start", CHANGE)[1]["phase"] == "running"


def test_a_target_of_one_backend_and_back(api):
    api.create()
    api.aim(percent=25)
    overridden = api.aim(percent=0, backend="FLASH_ATTN")[1]
    assert overridden["overrides"] == {"FLASH_ATTN": {"share": 0, "count": None}}
    assert api.aim(inherit=True, backend="FLASH_ATTN")[1]["overrides"] == {}


def test_decide_hands_out_a_pin(api):
    api.create()
    api.pair()
    api.aim(percent=100)
    status, handed = api("POST", "/api/v1/flags/clb/decide", {"deployment": "c/ns/a", "generation": "g2"})
    assert status == 200
    assert sorted(handed) == ["decision", "key", "signed"]
    assert api.register("r", generation="g2")[1]["decisions"] == [handed["decision"]]


def test_two_operators_at_once(api):
    api.create()
    assert api.aim(percent=10, revision=1)[0] == 200
    status, answer = api.aim(percent=20, revision=1)
    assert (status, answer) == (
        409,
        {
            "error": {
                "code": "stale_revision",
                "message": "the flag 'clb' is at revision 2, the change was based on 1",
                "hint": "look again: `kvflags rollout status clb`",
                "detail": {
                    "diff": STARTED,
                    "since": [{"revision": 2, "action": "set_target", "author": "ann", "reason": "go"}],
                },
            }
        },
    )
    assert flag(api)["target"] == {"share": 10_000, "count": None}


BAD = [
    ("aim", {"percent": 101}, 400, "invalid"),
    ("aim", {"percent": -1}, 400, "invalid"),
    ("aim", {"percent": "25"}, 400, "invalid"),
    ("aim", {"count": -1}, 400, "invalid"),
    ("aim", {"count": 1.5}, 400, "invalid"),
    ("aim", {"count": True}, 400, "invalid"),
    ("aim", {"percent": 5, "count": 1}, 400, "invalid"),
    ("aim", {}, 400, "invalid"),
    ("aim", {"inherit": True}, 400, "invalid"),
    ("aim", {"inherit": True, "percent": 5, "backend": "FLASH_ATTN"}, 400, "invalid"),
    ("aim", {"percent": 5, "backend": "FLASH"}, 400, "unknown_backend"),
    ("aim", {"percent": 5, "author": ""}, 400, "invalid"),
    ("aim", {"percent": 5, "author": None}, 400, "invalid"),
    ("aim", {"percent": 5, "reason": ""}, 400, "invalid"),
    ("aim", {"percent": 5, "reason": "\x1b[2J"}, 400, "invalid"),
    ("aim", {"percent": 5, "reason": "a" * 2001}, 400, "invalid"),
    ("create", {}, 409, "flag_exists"),
    ("create", {"key": "other"}, 409, "feature_taken"),
    ("create", {"key": "other", "feature": "warp"}, 400, "invalid"),
    ("create", {"key": "No Spaces"}, 400, "invalid"),
    ("create", {"key": "../etc"}, 400, "invalid"),
    ("create", {"key": "a" * 65}, 400, "invalid"),
    ("create", {"key": "b", "baseline_s": -1}, 400, "invalid"),
    ("register", {"name": "x", "deployment": ""}, 400, "invalid"),
    ("register", {"name": "x", "deployment": "  "}, 400, "invalid"),
    ("register", {"name": "x", "deployment": "a\nb"}, 400, "invalid"),
    ("register", {"name": "x", "deployment": "a\x00b"}, 400, "invalid"),
    ("register", {"name": "x", "deployment": "a" * 254}, 400, "invalid"),
    ("register", {"name": "x", "deployment": 7}, 400, "invalid"),
    ("register", {"name": "x", "generation": ""}, 400, "invalid"),
    ("register", {"name": "x", "generation": None}, 400, "invalid"),
    ("register", {"name": "x", "role": "chef"}, 400, "invalid"),
    ("register", {"name": "x", "running": "maybe"}, 400, "invalid"),
    ("register", {"name": "x", "local": {"source": "KVFLAGS_FORCE"}}, 400, "invalid"),
    ("register", {"name": "x", "facts": {"isolation": "none"}}, 400, "invalid"),
    ("register", {"name": "x", "facts": {"tp": -1}}, 400, "invalid"),
    ("register", {"name": "x", "facts": {"vllm": "a" * 65}}, 400, "invalid"),
    ("register", {"name": "x", "facts": []}, 400, "invalid"),
    ("register", {"name": "../x"}, 400, "invalid"),
    ("register", {"name": "r1", "deployment": "another"}, 409, "invalid"),
    ("beat", {"name": "nobody"}, 404, "unknown_registration"),
    ("beat", {"engine_id": ""}, 400, "invalid"),
    ("beat", {"seq": -1}, 400, "invalid"),
    ("beat", {"seq": 2**63}, 400, "invalid"),
    ("beat", {"clock": "yesterday"}, 400, "invalid"),
    ("beat", {"exercised": {"ok": -5}}, 400, "invalid"),
]


@pytest.mark.parametrize(("act", "body", "status", "code"), BAD)
def test_bad_input_is_one_clear_error_and_changes_nothing(api, act, body, status, code):
    api.create()
    api.register()
    before = api.dump()
    found, answer = getattr(api, act)(**body)
    assert (found, answer["error"]["code"]) == (status, code)
    assert sorted(answer) == ["error"]
    assert sorted(answer["error"]) == ["code", "hint", "message"]
    assert answer["error"]["message"]
    assert answer["error"]["hint"]
    assert api.dump() == before


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api/v1/flags/nope", 404, "unknown_flag"),
        ("GET", "/api/v1/flags/nope/status", 404, "unknown_flag"),
        ("GET", "/api/v1/flags/nope/report", 404, "unknown_flag"),
        ("GET", "/api/v1/flags/nope/feedback", 404, "unknown_flag"),
        ("GET", "/api/v1/flags/nope/explain?deployment=c/ns/a", 404, "unknown_flag"),
        ("GET", "/api/v1/flags/clb/explain?deployment=nope", 404, "unknown_deployment"),
        ("GET", "/api/v1/flags/clb/explain?deployment=", 400, "invalid"),
        ("GET", "/api/v1/flags/clb/explain", 400, "invalid"),
        ("GET", "/api/v1/nothing", 404, "invalid"),
        ("DELETE", "/api/v1/flags", 405, "invalid"),
    ],
)
def test_a_question_about_nothing(api, method, path, status, code):
    api.create()
    found, answer = api(method, path)
    assert (found, answer["error"]["code"]) == (status, code)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"[" * 50_000, b'{"key": "\xff"}', b"NaN"])
def test_a_body_that_is_no_request(api, content):
    found, answer = api("POST", "/api/v1/flags", content=content, headers={"content-type": "application/json"})
    assert (found, answer["error"]["code"]) == (400, "invalid")


def test_a_body_that_is_too_large(api):
    def pieces():
        for _ in range(100):
            yield b" " * 1000

    for content in (b" " * 65_537, pieces()):
        found, answer = api("POST", "/api/v1/flags", content=content)
        assert (found, answer["error"]["message"]) == (413, "the body is larger than 65536 bytes")


def test_a_reason_may_have_lines(api):
    assert api.create(reason="one\ntwo\n\tthree")[0] == 201


def test_what_a_newer_engine_says_more_is_ignored(api):
    api.create()
    status, answer = api.register(colour="blue", facts={"vllm": "0.32.0", "phase_of_moon": 3})
    assert (status, len(answer["decisions"])) == (200, 1)
    assert api.beat(colour="blue", layout={"resolved": "LBHNC", "tilt": 4})[0] == 200
