# SPDX-License-Identifier: Apache-2.0
"""Flags kept in files: checked without a collector, compared by a dry run, applied, put away."""

import pytest

KEY = "cross-layer-blocks"
WHY = ("--reason", "merged", "--author", "ada")
FILE = """\
key: cross-layer-blocks
feature: cross_layer_blocks
target: {percent: 25}
overrides:
  TRITON_ATTN: {count: 0}
holdback_percent: 5
held_back: [prod/chat/precious]
labels: {tier: canary}
vllm: ">=0.30,<0.33"
criteria: [verdict = ready, 'days_at_100 >= 14']
expires: "2027-06-01"
"""


@pytest.fixture
def flag_file(tmp_path):
    """`flag_file(text) -> path`."""

    def write(text=FILE, name="flag.yaml"):
        path = tmp_path / "flags" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


def test_a_file_is_compared_applied_and_then_there_is_nothing_to_do(kvflags, fleet, flag_file):
    path = flag_file()
    assert kvflags("flags", "diff", "-f", path).code == 1
    assert kvflags("flags", "list", "--json").document["data"] == []
    applied = kvflags("flags", "apply", "-f", path, *WHY)
    assert (applied.code, applied.out.splitlines()[0]) == (0, f"{KEY}: revision 2")
    again = kvflags("flags", "apply", "-f", path, *WHY)
    assert (again.code, again.out) == (0, f"{KEY}: nothing to do\n")
    flag = kvflags("flags", "show", KEY, "--json").document["data"]
    assert (flag["target"], flag["holdback"], flag["phase"]) == ({"share": 25_000, "count": None}, 5_000, "running")
    assert (flag["held_back"], flag["labels"], flag["expires"]) == (
        ["prod/chat/precious"],
        {"tier": "canary"},
        "2027-06-01",
    )


def test_what_a_file_leaves_out_is_the_default_again(kvflags, fleet, flag_file):
    kvflags("flags", "apply", "-f", flag_file(), *WHY)
    path = flag_file(FILE.replace("holdback_percent: 5\n", ""))
    assert kvflags("flags", "diff", "-f", path).out == f"{KEY}: would change\n  holdback: 5000 -> 0\n"


def test_a_kill_switch_outlives_an_apply(kvflags, fleet, flag_file):
    kvflags("flags", "apply", "-f", flag_file(), *WHY)
    kvflags("rollout", "kill", KEY, *WHY)
    kvflags("flags", "apply", "-f", flag_file(FILE.replace("25", "50")), *WHY)
    assert kvflags("flags", "show", KEY, "--json").document["data"]["kill_switch"] is True


@pytest.mark.parametrize(
    ("change", "where", "says"),
    [
        (("target: {percent: 25}", "target: {percent: 250}"), "target", "250"),
        (("holdback_percent", "hold_back_percent"), "document", "hold_back_percent"),
        (("cross_layer_blocks", "warp"), "feature", "there is no feature 'warp'"),
        (("key: cross-layer-blocks\n", ""), "document", "'key' is a required property"),
        (('"2027-06-01"', '"in June"'), "expires", "in June"),
    ],
)
def test_a_wrong_file_is_named_with_the_place_and_changes_nothing(kvflags, fleet, flag_file, change, where, says):
    path = flag_file(FILE.replace(*change))
    found = kvflags("flags", "validate", "-f", path)
    assert found.code == 1
    assert found.out.startswith(f"{path}: {where}")
    assert says in found.out
    assert kvflags("flags", "apply", "-f", path, *WHY).code == 2
    assert kvflags("flags", "list", "--json").document["data"] == []


def test_validation_needs_no_collector_and_takes_folders(kvflags, flag_file):
    path = flag_file()
    flag_file(FILE, "again.json.yaml")
    folder = path.rpartition("/")[0]
    assert kvflags("flags", "validate", "-f", path).out == "Every flag is as it should be.\n"
    assert "'cross-layer-blocks' is in" in kvflags("flags", "validate", "-f", folder).out


@pytest.mark.parametrize(("text", "says"), [("a: [", "is not YAML"), ("", "there is no flag in these files")])
def test_what_cannot_be_read(kvflags, flag_file, text, says):
    refused = kvflags("flags", "validate", "-f", flag_file(text))
    assert refused.code == 2
    assert says in refused.err


def test_what_the_collector_alone_knows_is_refused_in_a_dry_run_too(kvflags, fleet, flag_file):
    path = flag_file(FILE.replace("TRITON_ATTN", "TRITON"))
    refused = kvflags("flags", "diff", "-f", path)
    assert (refused.code, refused.err.splitlines()[0]) == (2, "error: there is no attention backend 'TRITON'")


def test_only_what_has_ended_is_archived_and_then_its_feature_is_free(kvflags, fleet, flag_file):
    kvflags("flags", "apply", "-f", flag_file(), *WHY)
    assert kvflags("flags", "archive", KEY, *WHY).err.splitlines()[0] == f"error: the flag '{KEY}' is running"
    kvflags("rollout", "abort", KEY, *WHY)
    assert kvflags("flags", "archive", KEY, *WHY).code == 0
    assert kvflags("flags", "create", "second", "--feature", "cross_layer_blocks", *WHY).code == 0
