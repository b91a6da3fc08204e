# SPDX-License-Identifier: Apache-2.0
"""`config show --origin`, and the order in which `serve` reads: command line, environment, file, default."""

import json

import pytest

from kvflags.settings import SETTINGS
from kvflags_cli.settings import VARIABLES


@pytest.fixture
def shown(kvflags):
    """`shown(*arguments)`: {(read by, name): row}."""

    def ask(*arguments):
        rows = kvflags("config", "show", *arguments, "--json").document["data"]
        return {(row["read_by"], row["name"]): row for row in rows}

    return ask


def _file(tmp_path, text):
    path = tmp_path / "serve.yaml"
    path.write_text(text)
    return str(path)


def test_every_setting_is_there(shown, kvflags):
    rows = shown()
    assert {name for by, name in rows if by == "engines"} == {setting.name for setting in SETTINGS}
    assert {name for by, name in rows if by == "the kvflags command"} == {setting.name for setting in VARIABLES}
    help_ = kvflags("serve", "--help").out
    of_serve = {name for by, name in rows if by == "kvflags serve"}
    assert {"--port", "--db", "--heartbeat", "--tls-cert", "--require-tokens"} < of_serve
    assert all(name in help_ for name in of_serve)


def test_serve_goes_by_the_environment_then_the_file_then_the_default(shown, tmp_path, monkeypatch):
    path = _file(tmp_path, "port: 5000\nheartbeat: 10s\nrequire-tokens: true\ndb: postgresql://u:hush@h/d\n")
    monkeypatch.setenv("KVFLAGS_SERVE_PORT", "6000")
    rows = shown("--config", path)
    found = {name: (rows["kvflags serve", name]["value"], rows["kvflags serve", name]["origin"]) for name in _ASKED}
    assert found == {
        "--port": ("6000", "environment KVFLAGS_SERVE_PORT"),
        "--heartbeat": ("10s", f"file {path}"),
        "--require-tokens": (True, f"file {path}"),
        "--db": ("postgresql://u:***@h/d", f"file {path}"),
        "--host": ("127.0.0.1", "default"),
    }
    monkeypatch.setenv("KVFLAGS_DB", "sqlite:///own.db")
    assert shown("--config", path)["kvflags serve", "--db"]["origin"] == "environment KVFLAGS_DB"


_ASKED = ("--port", "--heartbeat", "--require-tokens", "--db", "--host")


def test_serve_itself_goes_by_the_same(kvflags, tmp_path, monkeypatch):
    path = _file(tmp_path, "host: 0.0.0.0\nheartbeat: 0s\n")
    # Each is refused for the value that won, before anything is opened.
    assert "0.0.0.0 is reachable" in kvflags("serve", "--config", path, "--heartbeat", "30s").err
    monkeypatch.setenv("KVFLAGS_SERVE_CONFIG", path)
    monkeypatch.setenv("KVFLAGS_SERVE_HOST", "127.0.0.1")
    refused = kvflags("serve")
    assert (refused.code, refused.err.splitlines()[0]) == (2, "error: heartbeats lie 0.1 to 3600 seconds apart")


def test_secrets_are_masked(kvflags, monkeypatch):
    monkeypatch.setenv("KVFLAGS_TOKEN", "kvf_hush")
    monkeypatch.setenv("KVFLAGS_DB", "postgresql://ann:hush@db/kvflags")
    for form in ("table", "json", "yaml"):
        out = kvflags("config", "show", "--origin", "-o", form).out
        assert "hush" not in out
        assert "environment KVFLAGS_TOKEN" in out
        assert "postgresql://ann:***@db/kvflags" in out


def test_what_is_wrong_with_a_setting_is_said(kvflags, shown, monkeypatch):
    monkeypatch.setenv("KVFLAGS_ROLE", "cook")
    monkeypatch.setenv("POD_NAMESPACE", "llm")
    monkeypatch.setenv("APP_LABEL", "chat")
    assert "cook" in shown()["engines", "KVFLAGS_ROLE"]["problem"]
    assert shown()["engines", "KVFLAGS_DEPLOYMENT"]["value"] == "llm/chat"
    assert "KVFLAGS_ROLE: " in kvflags("config", "show").out


def test_the_origin_is_a_column_when_asked_for(kvflags):
    assert "ORIGIN" not in kvflags("config", "show").out
    assert "ORIGIN" in kvflags("config", "show", "--origin").out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prot: 4318", "unknown setting 'prot'"),
        ("config: other.yaml", "unknown setting 'config'"),
        ("- port", "not a mapping of settings"),
        ("port: [1, 2]", "port: not a plain value"),
        ("port: {", "cannot be read"),
        ("x" * 70_000, "not a mapping of settings"),
    ],
)
def test_a_file_that_is_wrong_is_a_usage_error(kvflags, tmp_path, text, says):
    result = kvflags("serve", "--config", _file(tmp_path, text), "--json")
    assert (result.code, json.loads(result.out)["error"]["code"]) == (2, "invalid")
    assert says in result.err


def test_a_file_that_is_not_there(kvflags):
    result = kvflags("config", "show", "--config", "nowhere.yaml")
    assert (result.code, "nowhere.yaml: cannot be read" in result.err) == (2, True)
