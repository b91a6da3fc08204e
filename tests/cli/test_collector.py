# SPDX-License-Identifier: Apache-2.0
"""The commands against a real collector, from the first flag to an abort: whole outputs, in words and as JSON."""

import pytest

KEY = "cross-layer-blocks"
CREATE = (
    "flags",
    "create",
    KEY,
    "--feature",
    "cross_layer_blocks",
    "--baseline",
    "0",
    "--quiet",
    "0",
    "--author",
    "ada",
)
SET = ("rollout", "set", KEY, "--author", "ada", "--reason", "first")

FLAG = """\
flag         cross-layer-blocks
feature      cross_layer_blocks
phase        draft
kill switch  not set
target       -
enrolment    100 %
holdback     0 %
baseline     0s
quiet        0s
revision     1
last change  2026-12-01 12:00:00 UTC create by ada: created
"""


@pytest.fixture
def rolling(kvflags, fleet):
    """Three deployments, one without isolation, observed; one of the others treated from its second generation on."""
    kvflags(*CREATE)
    for name in "ab":
        fleet.pair(f"prod/chat/{name}", "r1")
    fleet.pair("prod/chat/c", "r1", isolation="unknown")
    kvflags(*SET, "--count", "1")
    fleet.pair("prod/chat/a", "r2")
    return fleet


def test_an_empty_collector(kvflags, fleet):
    nobody = "None yet. They appear when an engine with KVFLAGS_COLLECTOR_URL set to this collector starts.\n"
    assert kvflags("flags", "list").out == (
        "No flags yet. Create one: kvflags flags create KEY --feature cross_layer_blocks\n"
    )
    assert kvflags("deployments", "list").out == kvflags("engines", "list").out == nobody
    for what in ("flags", "deployments", "engines"):
        assert kvflags(what, "list", "--json").document == {"schema": "kvflags/1", "kind": what, "data": []}


def test_a_flag_is_created_listed_and_shown(kvflags, fleet):
    created = kvflags(*CREATE)
    assert (created.code, created.out) == (0, FLAG)
    assert created.err == "next: kvflags rollout set cross-layer-blocks 5% --reason TEXT\n"
    assert kvflags("flags", "show", KEY).out == FLAG
    assert kvflags("flags", "list").out == (
        "KEY                 FEATURE             PHASE  TARGET  REVISION  EXPIRES\n"
        "cross-layer-blocks  cross_layer_blocks  draft  -              1  -\n"
    )
    shown = kvflags("flags", "show", KEY, "--json").document
    assert shown == {
        "schema": "kvflags/1",
        "kind": "flag",
        "data": {
            "key": KEY,
            "feature": "cross_layer_blocks",
            "salt_enrolment": "0" * 16,
            "salt_arm": "0" * 16,
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
            "created_at": "2026-12-01T12:00:00.000000Z",
            "updated_at": "2026-12-01T12:00:00.000000Z",
            "last_change": {"action": "create", "author": "ada", "reason": "created"},
        },
    }
    assert kvflags("flags", "list", "--json").document["data"] == [shown["data"]]


def test_defaults_of_a_new_flag(kvflags, fleet, monkeypatch):
    monkeypatch.setenv("LOGNAME", "ada")
    monkeypatch.setattr("socket.gethostname", lambda: "node1")
    flag = kvflags("flags", "create", KEY, "--feature", "cross_layer_blocks", "--json").document["data"]
    assert (flag["baseline_s"], flag["quiet_s"]) == (7 * 86_400, 600)
    assert flag["last_change"] == {"action": "create", "author": "ada@node1", "reason": "created"}


def test_a_target_by_percentage_and_by_backend(kvflags, fleet):
    kvflags(*CREATE)
    result = kvflags(*SET, "25%", "--json")
    assert (result.code, result.document["data"]["target"]) == (0, {"share": 25_000, "count": None})
    assert result.document["data"]["phase"] == "running"
    assert result.err == (
        "Running generations keep what they have; it takes effect as deployments are replaced.\n"
        "next: kvflags rollout status cross-layer-blocks\n"
    )
    with_override = kvflags(*SET, "--count", "2", "--backend", "FLASH_ATTN").out
    assert "target                25%\ntarget on FLASH_ATTN  2 deployments\n" in with_override
    flag = kvflags(*SET, "--inherit", "--backend", "FLASH_ATTN", "--json").document["data"]
    assert (flag["overrides"], flag["revision"]) == ({}, 4)


def test_status(kvflags, rolling):
    result = kvflags("rollout", "status", KEY)
    assert (result.code, result.err) == (0, "")
    assert (
        result.out
        == """\
flag         cross-layer-blocks
phase        running
kill switch  not set
target       1 deployment
realised     50 %: 1 of 2 treated
eligible     2
to replace   nothing

DEPLOYMENTS
DEPLOYMENT   ARM        GENERATION  VARIANT  STATE   ENGINES  REPLACE  REASON
prod/chat/a  treatment  r1 #1       off      pinned        2        0  phase_draft
prod/chat/a  treatment  r2 #1       on       pinned        2        0  assigned
prod/chat/b  control    r1 #1       off      pinned        2        0  phase_draft
prod/chat/c  -          r1 #1       off      pinned        2        0  phase_draft

PENDING
prod/chat/a  its next generation runs on
"""
    )
    data = kvflags("rollout", "status", KEY, "--json").document["data"]
    assert data["realised"] == {"eligible": 2, "enrolled": 2, "treated": 1, "control": 1, "share": 0.5}


def test_deployments_and_engines(kvflags, rolling):
    assert (
        kvflags("deployments", "list").out
        == """\
DEPLOYMENT   FLAG                ARM        GENERATIONS    ENGINES  ELIGIBLE
prod/chat/a  cross-layer-blocks  treatment  r1 off, r2 on        4  yes
prod/chat/b  cross-layer-blocks  control    r1 off               2  yes
prod/chat/c  cross-layer-blocks  -          r1 off               2  no: It is not stated what keeps generations apart; \
set KVFLAGS_ISOLATION to recreate, bluegreen or router
"""
    )
    lines = kvflags("engines", "list").out.splitlines()
    assert lines[0] == (
        "DEPLOYMENT   GENERATION  ROLE     STATE    REQUESTED  RESOLVED  EFFECTIVE   OK  ERRORS  ENGINE"
    )
    assert sorted(lines[1:])[2:4] == [
        "prod/chat/a  r2          decode   running  BHLNC      BHLNC     yes        100       0  a-r2-decode",
        "prod/chat/a  r2          prefill  running  BHLNC      BHLNC     yes        100       0  a-r2-prefill",
    ]
    assert len(kvflags("engines", "list", "--json").document["data"]) == 8


def test_engines_with_problems_say_so(kvflags, fleet):
    fleet.engine("prod/chat/a", "r1", "prefill", problems=["nixl_telemetry_disabled"])
    assert kvflags("engines", "list").out.endswith("\nPROBLEMS\na-r1-prefill  nixl_telemetry_disabled\n")


def test_an_engine_without_identity_is_shown(kvflags, fleet):
    fleet.engine(None, "default", "decode")
    assert kvflags("deployments", "list").out == (
        "DEPLOYMENT      FLAG  ARM  GENERATIONS  ENGINES  ELIGIBLE\n"
        "(unidentified)  -     -    default            1  -\n"
    )
    assert kvflags("engines", "list").out.splitlines()[1].startswith("(unidentified)  default     decode  running")


def test_explain_of_a_pinned_deployment(kvflags, rolling):
    assert (
        kvflags("explain", KEY, "--deployment", "prod/chat/a").out
        == """\
deployment  prod/chat/a
generation  r2

PRECEDENCE
   LINE               OUTCOME
→  pin                on: assigned (epoch 1, pinned)
   kill switch        not set
   phase              running
   opt-out            not opted out
   safe mode          not in safe mode
   gate               no rule refuses
   observation        observed, and as observed
   opt-in             not opted in
   holdback           not held back
   enrolment and arm  on: assigned

The pin outranks the lines below it. A generation registering now would be told on (assigned), \
decided by: enrolment and arm.
"""
    )
    data = kvflags("explain", KEY, "--deployment", "prod/chat/c", "--json").document["data"]
    assert (data["won"], data["next"]["reason"]) == ("pin", "gate:isolation")


def test_a_decision_is_handed_out_for_an_environment_file(kvflags, rolling):
    arguments = ("decide", KEY, "--deployment", "prod/chat/a", "--generation", "r3")
    document = kvflags(*arguments, "-o", "json").document
    assert document["kind"] == "decision"
    assert document["data"]["decision"]["variant"] == "on"
    expected = "KVFLAGS_DECISION={signed}\nKVFLAGS_DECISION_KEY={key}\n".format(**document["data"])
    assert kvflags(*arguments).out == kvflags(*arguments, "-o", "env").out == expected


def test_kill_clear_abort_and_start_again(kvflags, rolling):
    killed = kvflags("rollout", "kill", KEY, "--reason", "r", "--json")
    assert (killed.code, killed.document["data"]["kill_switch"]) == (0, True)
    status = kvflags("rollout", "status", KEY).out
    assert "kill switch  SET\n" in status
    assert "to replace   condemned, 2 engines to replace\n" in status
    assert "prod/chat/a  treatment  r2 #1       on       condemned        2        2  assigned, kill_switch\n" in status
    assert (
        kvflags("rollout", "kill", KEY, "--clear", "--reason", "r", "--json").document["data"]["kill_switch"] is False
    )

    aborted = kvflags("rollout", "abort", KEY, "--reason", "r")
    assert (aborted.code, "phase        aborted\n" in aborted.out) == (0, True)
    assert aborted.err == (
        "kvflags restarts nothing: replace what still runs treated. next: kvflags rollout status cross-layer-blocks\n"
    )
    assert kvflags("rollout", "start", KEY, "--reason", "r", "--json").document["data"]["phase"] == "running"


_REFUSED = {
    "unknown flag": (
        ("rollout", "status", "nope"),
        "unknown_flag",
        "there is no flag 'nope'",
        "flags: cross-layer-blocks",
    ),
    "unknown flag, set": (
        ("rollout", "set", "nope", "25%", "--reason", "r"),
        "unknown_flag",
        "there is no flag 'nope'",
        "flags: cross-layer-blocks",
    ),
    "unknown backend": (
        (*SET, "5%", "--backend", "NOPE"),
        "unknown_backend",
        "there is no attention backend 'NOPE'",
        "backends: CPU_ATTN, CUTLASS_MLA, FLASHINFER, FLASHINFER_MLA, FLASHMLA, FLASH_ATTN, FLASH_ATTN_MLA, "
        "FLEX_ATTENTION, ROCM_AITER_FA, ROCM_AITER_UNIFIED_ATTN, ROCM_ATTN, TRITON_ATTN, TRITON_MLA",
    ),
    "stale revision": (
        (*SET, "5%", "--revision", "9"),
        "stale_revision",
        "the flag 'cross-layer-blocks' is at revision 1, the change was based on 9",
        "look again: `kvflags rollout status cross-layer-blocks`",
    ),
    "negative count": ((*SET, "--count", "-1"), "invalid", "a count is 0 or more", "for example 25% or --count 2"),
    "flag exists": (
        CREATE,
        "flag_exists",
        "the flag 'cross-layer-blocks' exists",
        "see `kvflags flags show cross-layer-blocks`",
    ),
    "feature taken": (
        ("flags", "create", "other", "--feature", "cross_layer_blocks"),
        "feature_taken",
        "the feature cross_layer_blocks has a flag: 'cross-layer-blocks'",
        "use 'cross-layer-blocks'",
    ),
    "unknown feature": (
        ("flags", "create", "other", "--feature", "nothing"),
        "invalid",
        "there is no feature 'nothing'",
        "features: cross_layer_blocks",
    ),
    "unknown deployment": (
        ("explain", KEY, "--deployment", "prod/chat/a"),
        "unknown_deployment",
        "there is no deployment 'prod/chat/a'",
        "see `kvflags deployments list`",
    ),
    "empty deployment": (
        ("explain", KEY, "--deployment", ""),
        "invalid",
        "--deployment: it is empty",
        "such as cluster/namespace/name; see `kvflags deployments list`",
    ),
    "deployment too long": (
        ("explain", KEY, "--deployment", "x" * 254),
        "invalid",
        "--deployment: it is longer than 253 bytes",
        "such as cluster/namespace/name; see `kvflags deployments list`",
    ),
    "deployment with control characters": (
        ("decide", KEY, "--generation", "r1", "--deployment", "a\x1b[2J"),
        "invalid",
        "--deployment: it has control characters, or white space at an end",
        "such as cluster/namespace/name; see `kvflags deployments list`",
    ),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_what_is_refused_is_told_and_changes_nothing(kvflags, fleet, case):
    arguments, code, message, hint = _REFUSED[case]
    kvflags(*CREATE)
    before = kvflags("flags", "list", "--json").document
    in_words = kvflags(*arguments)
    assert (in_words.code, in_words.out, in_words.err) == (2, "", f"error: {message}\n\nhint: {hint}\n")
    as_json = kvflags(*arguments, "--json")
    assert (as_json.code, as_json.err) == (2, in_words.err)
    assert as_json.document["error"] == {"code": code, "message": message, "hint": hint}
    assert kvflags("flags", "list", "--json").document == before


def test_a_stopped_flag_takes_no_target(kvflags, fleet):
    kvflags(*CREATE)
    kvflags("rollout", "abort", KEY, "--reason", "r")
    result = kvflags(*SET, "5%", "--json")
    assert (result.code, result.document["error"]["code"]) == (2, "wrong_phase")


def test_doctor_of_a_healthy_fleet(kvflags, rolling):
    result = kvflags("doctor")
    assert (result.code, result.out) == (
        0,
        f"""\
✓ ok  vllm: 0.32.0
✓ ok  plugin: vLLM will load it
✓ ok  settings: every KVFLAGS_ variable can be read
✓ ok  nixl telemetry: not switched off
✓ ok  collector: {rolling.url} is ready
✓ ok  clock: within 5 s of the collector's
✓ ok  expiry: no flag is past its day
- skipped  webhook: no webhook was ever set
✓ ok  roles: wherever engines live, prefill and decode share a generation
✓ ok  engines: none reports a problem

No findings.
""",
    )


def test_doctor_names_what_is_wrong_in_the_fleet(kvflags, fleet):
    fleet.engine("prod/chat/a", "7d4f", "prefill", problems=["nixl_telemetry_disabled"])
    fleet.engine("prod/chat/a", "9b1c", "decode")
    result = kvflags("doctor", "--json")
    assert (result.code, result.document["data"]["findings"]) == (1, 2)
    assert [check for check in result.document["data"]["checks"] if check["outcome"] == "finding"] == [
        {
            "name": "roles",
            "outcome": "finding",
            "says": "prod/chat/a: 7d4f has prefill only, 9b1c has decode only",
            "hint": "set KVFLAGS_GENERATION to the same release label on both, "
            "or wait if the other role is still starting",
        },
        {
            "name": "engines",
            "outcome": "finding",
            "says": "nixl_telemetry_disabled on prod/chat/a a-7d4f-prefill",
            "hint": "unset NIXL_TELEMETRY_ENABLE on these engines",
        },
    ]


def test_doctor_without_a_collector(kvflags, free_port, monkeypatch):
    monkeypatch.setenv("KVFLAGS_COLLECTOR_URL", f"http://127.0.0.1:{free_port}")
    result = kvflags("doctor")
    assert result.code == 1
    assert result.out.endswith(
        f"✗ finding  collector: cannot reach the collector at http://127.0.0.1:{free_port} "
        "(from KVFLAGS_COLLECTOR_URL): connection refused\n"
        "  hint: start one with `kvflags serve`, or name yours with --collector URL or KVFLAGS_COLLECTOR_URL\n"
        "\n1 finding.\n"
    )
