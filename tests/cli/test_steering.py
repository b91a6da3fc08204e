# SPDX-License-Identifier: Apache-2.0
"""Steering a rollout and single deployments from the command line, against a real collector."""

import pytest

from kvflags_cli import complete
from kvflags_cli.complete import deployments
from kvflags_cli.default_files import write

KEY = "cross-layer-blocks"
WHY = ("--reason", "because", "--author", "ada")
ONE = "prod/chat/a"


@pytest.fixture
def rolling(kvflags, fleet):
    """One deployment, treated from its second generation on."""
    kvflags("flags", "create", KEY, "--feature", "cross_layer_blocks", "--baseline", "0", "--quiet", "0", *WHY)
    fleet.pair(ONE, "r1")
    kvflags("rollout", "set", KEY, "100%", *WHY)
    fleet.pair(ONE, "r2")
    return fleet


def test_an_abort_waits_and_names_who_is_still_treated(kvflags, rolling):
    aborted = kvflags("rollout", "abort", KEY, "--wait", "--timeout", "1s", *WHY)
    assert aborted.code == 3
    assert aborted.out == (
        "DEPLOYMENT   GENERATION  ROLE     ENGINE\n"
        "prod/chat/a  r2          decode   a-r2-decode\n"
        "prod/chat/a  r2          prefill  a-r2-prefill\n"
    )
    command = "kubectl --context prod -n chat {} deployment,statefulset -l app.kubernetes.io/instance=a {}"
    assert aborted.err.splitlines() == [
        "2 treated engines live",
        "replace them:",
        "  " + command.format("set env", "KVFLAGS_GENERATION=r2.kv3"),
        "  " + command.format("rollout status", "--timeout=30m"),
    ]


def test_an_abort_is_done_when_nothing_is_treated(kvflags, fleet):
    kvflags("flags", "create", KEY, "--feature", "cross_layer_blocks", *WHY)
    fleet.pair(ONE, "r1")
    aborted = kvflags("rollout", "abort", KEY, "--wait", "--timeout", "30s", *WHY)
    assert (aborted.code, aborted.out) == (0, "No treated engine lives.\n")


def test_the_course_and_its_history(kvflags, rolling):
    assert "phase        paused" in kvflags("rollout", "pause", KEY, *WHY).out
    assert "phase        running" in kvflags("rollout", "resume", KEY, *WHY).out
    kvflags("rollout", "set", KEY, "5%", *WHY)
    assert "target       100%" in kvflags("rollout", "undo", KEY, *WHY).out
    history = kvflags("rollout", "history", KEY).out.splitlines()
    assert [line.split()[3:5] for line in history[1:3]] == [["6", "undo"], ["5", "set_target"]]
    assert history[1].split()[-2:] == ["ada", "because"]


def test_a_deployment_is_declared_opted_and_shown(kvflags, rolling):
    declared = kvflags("deployments", "declare", ONE, "--isolation", "recreate", "--label", "tier=canary", *WHY)
    assert declared.out == (
        "deployment          prod/chat/a\ndeclared isolation  recreate\ndeclared prefill    1\n"
        "declared decode     1\ndeclared labels     tier=canary\n"
    )
    assert kvflags("deployments", "opt-out", ONE, "--flag", KEY, *WHY).out == "prod/chat/a: opted out\n"
    assert kvflags("deployments", "opt-out", ONE, "--flag", KEY, *WHY).out == "prod/chat/a: opted out (as before)\n"
    shown = kvflags("deployments", "show", ONE).out
    assert "opted       out\n" in shown
    assert "pins        r1 off, r2 on condemned\n" in shown
    assert "declared labels     tier=canary\n" in shown
    assert kvflags("deployments", "opt-out", ONE, "--flag", KEY, "--clear", *WHY).out == (
        "prod/chat/a: takes what is dealt\n"
    )


def test_a_generation_is_forced_and_reopened(kvflags, rolling):
    where = (ONE, "--flag", KEY, "--generation", "r3")
    assert (
        kvflags("deployments", "force", *where, "--variant", "off", *WHY).out == "prod/chat/a r3: pinned off, epoch 1\n"
    )
    again = kvflags("deployments", "force", *where, "--variant", "on", *WHY)
    assert (again.code, again.err.splitlines()[0]) == (2, "error: prod/chat/a r3 is pinned off")
    assert kvflags("deployments", "reopen", *where, *WHY).out == "prod/chat/a r3: epoch 1 (off) closed\n"


def test_what_does_not_exist(kvflags, rolling):
    missing = kvflags("deployments", "show", "prod/chat/zzz")
    assert (missing.code, missing.err.splitlines()[0]) == (2, "error: there is no deployment 'prod/chat/zzz'")
    wrong = kvflags("deployments", "declare", ONE, "--label", "tier", *WHY)
    assert (wrong.code, wrong.err.splitlines()[0]) == (2, "error: --label: not a label, or named twice: 'tier'")


def test_two_operators_at_once_see_each_others_change(kvflags, rolling):
    late = kvflags("rollout", "set", KEY, "10%", "--revision", "1", *WHY)
    assert late.code == 2
    assert late.err.splitlines()[:4] == [
        "error: the flag 'cross-layer-blocks' is at revision 2, the change was based on 1",
        "  2: set_target by ada: because",
        '  phase: "draft" -> "running"',
        '  target: null -> {"share": 100000, "count": null}',
    ]


def test_names_of_deployments_complete(kvflags, rolling, monkeypatch):
    # What is asked here is not whether a busy machine answers within half a second.
    monkeypatch.setattr(complete, "_PATIENCE_S", 30)
    assert deployments("prod/") == [ONE]
    assert deployments("x") == []


def test_a_ramp_is_laid_out_shown_and_promoted(kvflags, rolling):
    planned = kvflags("rollout", "plan", KEY, "--steps", "1,2,5", "--hold", "2d", "--approve", *WHY)
    assert (planned.code, planned.err) == (0, f"next: kvflags rollout status {KEY}\n")
    assert "target       1 deployment\n" in kvflags("rollout", "promote", KEY, *WHY).out
    status = kvflags("rollout", "status", KEY).out
    assert "ramp         [1 deployment] → 2 deployments → 5 deployments\n" in status
    assert "next step    time: 0 s of 2 d; analysis: no transfer" in status
    locked = kvflags("rollout", "set", KEY, "50%", *WHY)
    assert (locked.code, locked.err.splitlines()[0]) == (2, f"error: a ramp steers the flag '{KEY}'")
    assert kvflags("rollout", "plan", KEY, "--clear", *WHY).code == 0
    assert "holdback     5 %\n" in kvflags("rollout", "promote", KEY, "--default", *WHY).out


def test_a_wrong_ramp_is_refused(kvflags, rolling):
    wrong = kvflags("rollout", "plan", KEY, "--steps", "1,two", *WHY)
    assert (wrong.code, wrong.err.splitlines()[0]) == (2, "error: --steps: not a percentage or a count: 'two'")
    shrinking = kvflags("rollout", "plan", KEY, "--steps", "5%,1%", *WHY)
    assert (shrinking.code, shrinking.err.splitlines()[0]) == (
        2,
        "error: the steps of a ramp grow, all as percentages or all as counts",
    )


def test_making_it_the_default_leaves_the_report_that_it_rests_on(kvflags, rolling, tmp_path):
    promoted = kvflags("rollout", "promote", KEY, "--default", "--out", str(tmp_path / "kept"), *WHY)
    [report] = (tmp_path / "kept").iterdir()
    assert report.name == f"{KEY}-2026-12-01.md"
    assert report.read_text().startswith("## ")
    assert f"wrote {report}\nno stratum is proven yet (the verdict is waiting)" in promoted.err


def test_a_report_that_cannot_be_written_stops_the_default(kvflags, rolling, tmp_path):
    (tmp_path / "taken").write_text("")
    wrong = kvflags("rollout", "promote", KEY, "--default", "--out", str(tmp_path / "taken"), *WHY)
    assert (wrong.code, kvflags("flags", "show", KEY, "--json").document["data"]["default_since_us"]) == (2, None)


def test_where_a_stratum_is_proven_the_change_to_vllm_is_kept_too(kvflags, rolling, tmp_path):
    document = kvflags("report", KEY, "--json").document["data"]
    document["predicate"] = {
        "layout": "BHLNC",
        "where": [{"backend": "FLASH_ATTN", "block_size": 16}],
        "unless": [],
        "says": "Ask for BHLNC where backend FLASH_ATTN, block size 16; and none of the rules below is met.",
    }
    report, change = write(document, tmp_path)
    assert [report.suffix, change.suffix] == [".md", ".patch"]
    assert (
        "+            (backend == 'FLASH_ATTN' and vllm_config.cache_config.block_size == 16)\n" in change.read_text()
    )
