# SPDX-License-Identifier: Apache-2.0
"""`-o table|json|yaml|name`: every list and every command that shows one thing has it, by the same mechanism."""

import pytest
import typer
import yaml

from kvflags.sent import Kind, LastSent, Result
from kvflags_cli.app import app

KEY = "cross-layer-blocks"
A = "prod/chat/a"

NAMES = {
    ("flags", "list"): [KEY],
    ("flags", "show", KEY): [KEY],
    ("rollout", "status", KEY): [KEY],
    ("rollout", "history", KEY): ["2", "1"],
    ("deployments", "list"): [A, "prod/chat/b"],
    ("deployments", "show", A): [A],
    ("engines", "list"): ["a-r1-decode", "a-r1-prefill", "b-r1-decode", "b-r1-prefill"],
    ("tokens", "list"): [],
    ("feedback", "list", KEY): ["g1"],
    ("feedback", "show", KEY, "g1"): ["g1"],
    ("plan", "fleet"): [A, "prod/chat/b"],
    ("plan", "restarts", KEY): [A, "prod/chat/b"],
    ("explain", KEY, "--deployment", A): [A],
    ("config", "show"): None,
    ("telemetry", "show"): ["heartbeat"],
}


@pytest.fixture
def busy(kvflags, fleet, tmp_path, monkeypatch):
    """Something to list and to show of each kind."""
    monkeypatch.setenv("KVFLAGS_STATE_DIR", str(tmp_path / "state"))
    sent = LastSent(str(tmp_path / "state"), Kind.HEARTBEAT, "http://collector:4318/")
    sent.note(b"{}", Result.TAKEN)
    sent.write(at_once=True)
    kvflags("flags", "create", KEY, "--feature", "cross_layer_blocks", "--baseline", "0", "--quiet", "0")
    for name in ("a", "b"):
        fleet.pair(f"prod/chat/{name}", "r1")
    kvflags("rollout", "set", KEY, "--count", "1", "--reason", "first")
    kvflags("deployments", "declare", A, "--isolation", "recreate", "--reason", "Ümlaut: 'quoted'\nsecond line")
    given = kvflags("feedback", "give", KEY, "--deployment", A, "--positive", "--comment", "fine")
    assert given.code == 0


def test_each_form_of_each_command(kvflags, busy):
    for command, names in NAMES.items():
        plain = kvflags(*command, "--json").document
        assert kvflags(*command, "-o", "json").document == plain, command
        as_yaml = kvflags(*command, "-o", "yaml")
        assert (as_yaml.code, yaml.safe_load(as_yaml.out)) == (0, plain), command
        named = kvflags(*command, "--output=name").out.splitlines()
        assert sorted(named) == sorted(names or [row["name"] for row in plain["data"]]), command
        assert kvflags(*command, "-o", "table").out == kvflags(*command).out, command


def test_every_list_and_everything_that_shows_one_thing_is_held_here(kvflags):
    shown = [path for path in _paths(typer.main.get_command(app)) if path[-1] in {"list", "show"}]
    assert {command[:2] for command in NAMES} >= set(shown)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_an_error_is_one_document_too(kvflags, fleet, form):
    result = kvflags("flags", "show", "nosuch", "-o", form)
    document = yaml.safe_load(result.out)
    assert (result.code, document["kind"], document["error"]["code"]) == (2, "error", "unknown_flag")
    assert result.err.startswith("error: there is no flag 'nosuch'")


def test_what_has_no_names_says_so(kvflags):
    result = kvflags("explain", "--engine-args", "--model /m", "--vllm", "0.33", "-o", "name")
    assert (result.code, result.out) == (2, "")
    assert result.err == "error: there is nothing in it that has a name\n\nhint: -o table, json or yaml\n"


def test_two_forms_at_once_are_refused(kvflags, fleet):
    assert kvflags("flags", "list", "-o", "yaml", "--json").code == 2
    assert kvflags("flags", "list", "-o", "json", "--json").code == 0


def _paths(command, *path):
    below = getattr(command, "commands", {})
    if not below:
        yield path
    for name, one in below.items():
        yield from _paths(one, *path, name)
