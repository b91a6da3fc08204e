# SPDX-License-Identifier: Apache-2.0
"""`kvflags serve` on loopback leaves an admin's token, and the command line of the same user finds it by itself."""

import os
import stat
import subprocess
import sys
from contextlib import contextmanager

import httpx
import pytest

from kvflags.local_token import place
from kvflags_cli.settings import connection

CREATE = ("flags", "create", "clb", "--feature", "cross_layer_blocks")


@contextmanager
def _serving(**environ):
    command = [sys.executable, "-W", "error", "-m", "kvflags_cli", "serve", "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environ
    )
    with process:
        try:
            yield process, process.stdout.readline().split()[4]
        finally:
            process.terminate()


@pytest.fixture
def collector(tmp_path, monkeypatch):
    """(address, path of the token) of a collector that the command line is pointed at."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with _serving() as (_, url):
        monkeypatch.setenv("KVFLAGS_COLLECTOR_URL", url)
        yield url, place(httpx.URL(url).port)


def test_the_command_line_finds_it_and_who_has_none_only_reads(kvflags, collector):
    url, path = collector
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    flag = {"key": "clb", "feature": "cross_layer_blocks", "author": "ann", "reason": "x"}
    assert httpx.post(f"{url}/api/v1/flags", json=flag, trust_env=False).status_code == 401
    assert httpx.get(f"{url}/api/v1/flags", trust_env=False).json()["items"] == []
    assert kvflags(*CREATE).code == 0
    assert [row["scope"] for row in kvflags("tokens", "list", "--json").document["data"]] == ["admin"]
    row = _token(kvflags)
    assert (row["value"], row["origin"], row["problem"]) == ("***", f"file {path}", None)


def test_a_token_that_is_given_goes_before_it(kvflags, collector, monkeypatch):
    monkeypatch.setenv("KVFLAGS_TOKEN", "kvf_wrong")
    refused = kvflags(*CREATE)
    assert (refused.code, refused.err.splitlines()[0]) == (4, "error: the token is not known here, expired or revoked")
    assert _token(kvflags)["origin"] == "environment KVFLAGS_TOKEN"


def test_what_others_can_read_is_not_used_and_the_error_says_so(kvflags, collector):
    _, path = collector
    path.chmod(0o644)
    refused = kvflags(*CREATE)
    says = f"{path} can be read by others (chmod 600)"
    assert refused.code == 4
    assert refused.err == (
        f"error: a token is needed\n\nhint: {says}, so its token is not used; KVFLAGS_TOKEN goes before it\n"
    )
    assert (_token(kvflags)["value"], _token(kvflags)["problem"]) == (None, says)
    # Reading goes on.
    assert kvflags("flags", "list").code == 0
    path.chmod(0o600)
    assert kvflags(*CREATE).code == 0


def test_one_of_a_collector_that_is_gone_is_told_from_none(kvflags, collector):
    _, path = collector
    path.write_text("kvf_" + "x" * 43 + "\n")
    refused = kvflags(*CREATE)
    assert (refused.code, refused.err.splitlines()[-1]) == (
        4,
        f"hint: {path} holds no token of this collector: restart it, or set KVFLAGS_TOKEN",
    )


def test_it_is_sent_to_this_machine_only(collector, monkeypatch):
    url, path = collector
    port = httpx.URL(url).port
    assert connection(f"http://localhost:{port}").token == path.read_text().strip()
    assert connection(f"http://collector.example:{port}").token == ""


def test_where_it_cannot_be_left_the_collector_serves_all_the_same(kvflags, tmp_path):
    (tmp_path / "file").touch()
    with _serving(XDG_STATE_HOME=str(tmp_path / "file")) as (process, url):
        assert httpx.get(f"{url}/api/v1/flags", trust_env=False).status_code == 200
        refused = kvflags(*CREATE, "--collector", url)
        assert (refused.code, refused.err.splitlines()[0]) == (4, "error: a token is needed")
        process.terminate()
        assert "no admin's token was left for the command line" in process.stderr.read()


def _token(kvflags):
    rows = kvflags("config", "show", "--json").document["data"]
    return next(row for row in rows if (row["read_by"], row["name"]) == ("the kvflags command", "KVFLAGS_TOKEN"))
