# SPDX-License-Identifier: Apache-2.0
"""`kvflags feedback bundle|key|submit|revoke` and `kvflags hub`, between two real collectors, one of them a hub."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from bundles import bundle, key_of, signed
from listening import listening

from kvflags.signatures import canonical, decoded, encoded, holds
from kvflags_cli.organisation import may_share, private_key
from kvflags_collector.app import create_app
from kvflags_collector.settings import Settings
from kvflags_collector.store.database import Database

KEY = "clb"


@pytest.fixture(autouse=True)
def _own_home(monkeypatch, tmp_path):
    """Nobody's real key or settings; opted in."""
    for name in ("DO_NOT_TRACK", "VLLM_DO_NOT_TRACK", "VLLM_NO_USAGE_STATS", "VLLM_CONFIG_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("KVFLAGS_ORGANISATION_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("KVFLAGS_SHARE", "on")


@pytest.fixture
def key_file(tmp_path):
    return tmp_path / "config" / "kvflags" / "organisation.key"


@pytest.fixture
def hub(tmp_path, fleet):
    """Its address; its clock is the fleet's."""
    settings = Settings(db=f"sqlite:///{tmp_path}/hub.db", port=0, hub=True)
    with (
        closing(Database(settings.db, upgrade=True)) as db,
        listening(create_app(settings, db, clock=lambda: fleet.now_us)) as url,
    ):
        yield url


@pytest.fixture
def pair(fleet, kvflags):
    assert kvflags("flags", "create", KEY, "--feature", "cross_layer_blocks").code == 0
    fleet.pair("acme/prod/chat", "r1")
    return fleet


def test_what_is_shown_is_what_is_sent_and_its_signature_holds(pair, hub, kvflags, tmp_path):
    shown = json.loads(kvflags("feedback", "bundle", KEY, "--show").out)
    assert kvflags("feedback", "bundle", KEY, "--json").document["data"] == shown
    written = kvflags("feedback", "bundle", KEY, "--out", "bundle.json")
    assert (written.code, written.out) == (0, "")
    assert "Nothing was sent" in written.err
    assert json.loads(Path("bundle.json").read_text()) == shown
    assert holds(shown["key"], canonical(shown["bundle"]), decoded(shown["signature"]))
    assert kvflags("feedback", "submit", KEY, "--to", hub).code == 0
    with closing(sqlite3.connect(tmp_path / "hub.db")) as conn:
        [(document, signature)] = conn.execute("SELECT document, signature FROM hub_bundles")
    assert (json.loads(document), signature) == (shown["bundle"], shown["signature"])
    assert shown["bundle"]["deployments"] is None


def test_send_admit_report_take_back(pair, hub, kvflags):
    sent = kvflags("feedback", "submit", KEY, "--to", hub, "--json")
    receipt = sent.document["data"]
    assert (receipt["state"], receipt["counted"]) == ("pending", False)
    assert "once the hub's operator has admitted" in sent.err
    [listed] = kvflags("hub", "organisations", "--collector", hub, "--json").document["data"]
    assert (listed["organisation"], listed["state"]) == (receipt["organisation"], "pending")
    assert kvflags("hub", "organisations", "-o", "name", "--collector", hub).out == f"{listed['organisation']}\n"
    admitted = kvflags("hub", "admit", listed["organisation"], "--name", "Acme", "--author", "ann", "--collector", hub)
    assert "admitted" in admitted.out
    assert "Acme" in admitted.out
    report = ("hub", "report", "cross-layer-blocks", "--collector", hub)
    found = kvflags(*report, "--json").document["data"]
    assert (found["organisations"], found["verdict"]["state"]) == (1, "waiting")
    text = kvflags(*report)
    assert text.out.startswith("WAITING  too_few_organisations\n")
    assert "Acme" not in text.out
    back = kvflags("feedback", "revoke", receipt["receipt"], "--to", hub)
    assert back.out == f"Taken back from the hub: 1 bundle (organisation {receipt['organisation']}).\n"
    assert kvflags(*report, "--json").document["data"]["organisations"] == 0
    again = kvflags("feedback", "submit", KEY, "--to", hub, "--json")
    assert (again.code, again.document["error"]["code"]) == (2, "revoked_bundle")
    assert kvflags("hub", "dismiss", listed["organisation"], "--author", "ann", "--collector", hub).code == 0


def test_sending_it_again_changes_nothing_and_succeeds(pair, hub, kvflags):
    first = kvflags("feedback", "submit", KEY, "--to", hub, "--json")
    second = kvflags("feedback", "submit", KEY, "--to", hub, "--json")
    assert (first.code, second.code) == (0, 0)
    assert second.document == first.document
    assert "this bundle is here already" in second.err


def test_who_leaves_is_refused_until_there_is_another_key(pair, hub, kvflags, key_file):
    kvflags("feedback", "submit", KEY, "--to", hub)
    assert "everything, for good" in kvflags("feedback", "revoke", "--all", "--to", hub).out
    pair.now_us += 86_400 * 1_000_000
    refused = kvflags("feedback", "submit", KEY, "--to", hub, "--json")
    assert (refused.code, refused.document["error"]["code"]) == (2, "organisation_left")
    key_file.unlink()
    assert kvflags("feedback", "submit", KEY, "--to", hub).code == 0


def test_a_bundle_that_was_carried_is_sent_as_it_is(hub, kvflags, tmp_path):
    carried = signed(key_of("acme"), bundle("acme", made_on="2026-12-01"))
    (tmp_path / "bundle.json").write_text(json.dumps(carried))
    sent = kvflags("feedback", "submit", "--file", "bundle.json", "--to", hub, "--json")
    assert sent.document["data"]["feature"] == "cross_layer_blocks"
    carried["bundle"]["deployments"] = 31
    (tmp_path / "bundle.json").write_text(json.dumps(carried))
    refused = kvflags("feedback", "submit", "--file", "bundle.json", "--to", hub, "--json")
    assert (refused.code, refused.document["error"]["code"]) == (2, "bad_signature")


def test_the_key_is_made_on_first_use_for_its_owner_alone(kvflags, key_file):
    first = kvflags("feedback", "key", "--json")
    assert first.document["data"]["file"] == str(key_file)
    assert str(key_file) in first.err
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert os.listdir(key_file.parent) == ["organisation.key"]
    again = kvflags("feedback", "key", "--json")
    assert (again.document, again.err) == (first.document, "")
    shown = kvflags("feedback", "key").out
    assert key_file.read_text().strip() not in shown + first.out


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [("", 0o600, "holds no key"), ("A" * 42, 0o600, "holds no key"), ("\u00e9", 0o600, "holds no key")],
)
def test_what_is_no_key_is_named_and_left_alone(kvflags, tmp_path, monkeypatch, text, mode, says):
    file = tmp_path / "own.key"
    file.write_text(text)
    file.chmod(mode)
    monkeypatch.setenv("KVFLAGS_ORGANISATION_KEY", str(file))
    result = kvflags("feedback", "key", "--json")
    assert (result.code, result.document["error"]["message"]) == (2, f"{file} {says}")
    assert file.read_text() == text


def test_a_key_that_others_can_read_is_refused(key_file):
    private_key(key_file)
    key_file.chmod(0o640)
    with pytest.raises(Exception, match="can be read by others"):
        private_key(key_file)


def test_a_folder_that_cannot_be_written_is_told(kvflags, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KVFLAGS_ORGANISATION_KEY", str(tmp_path / "file" / "own.key"))
    result = kvflags("feedback", "key")
    assert result.code == 2
    assert "cannot be used: " in result.err


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({}, "this fleet has not opted in: nothing is sent"),
        ({"KVFLAGS_SHARE": "off"}, "this fleet has not opted in: nothing is sent"),
        ({"KVFLAGS_SHARE": "on", "DO_NOT_TRACK": "1"}, "DO_NOT_TRACK says no: nothing is sent"),
        ({"KVFLAGS_SHARE": "on", "VLLM_DO_NOT_TRACK": "yes"}, "VLLM_DO_NOT_TRACK says no: nothing is sent"),
        ({"KVFLAGS_SHARE": "on", "VLLM_NO_USAGE_STATS": "True"}, "VLLM_NO_USAGE_STATS says no: nothing is sent"),
    ],
)
def test_nothing_is_sent_unless_the_operator_says_so(pair, hub, kvflags, monkeypatch, environ, says):
    monkeypatch.delenv("KVFLAGS_SHARE")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    result = kvflags("feedback", "submit", KEY, "--to", hub, "--json")
    assert (result.code, result.document["error"]["code"]) == (2, "not_opted_in")
    assert result.document["error"]["message"] == says
    assert kvflags("hub", "organisations", "--collector", hub, "--json").document["data"] == []


@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "VLLM_CONFIG_ROOT", "HOME"])
def test_vllms_own_mark_is_honoured(tmp_path, variable):
    below = {"XDG_CONFIG_HOME": "vllm", "VLLM_CONFIG_ROOT": ".", "HOME": ".config/vllm"}[variable]
    environ = {"KVFLAGS_SHARE": "on", variable: str(tmp_path)}
    assert may_share(environ) == "KVFLAGS_SHARE=on (environment)"
    mark = tmp_path / below / "do_not_track"
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    with pytest.raises(Exception, match="do_not_track says no"):
        may_share(environ)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("feedback", "submit", "--to", "http://127.0.0.1:9"), 2, "say what to send"),
        (("feedback", "submit", KEY, "--file", "x", "--to", "http://127.0.0.1:9"), 2, "say what to send"),
        (("feedback", "submit", "--file", "x", "--to", "http://127.0.0.1:9"), 2, "x cannot be read"),
        (("feedback", "submit", "--file", "not.json", "--to", "http://127.0.0.1:9"), 2, "not.json is no bundle"),
        (("feedback", "submit", "--file", "deep.json", "--to", "http://127.0.0.1:9"), 2, "deep.json is no bundle"),
        (("feedback", "submit", "--file", "any.json", "--to", "hub.example"), 2, "--to: it is not"),
        (("feedback", "submit", "--file", "any.json", "--to", "http://127.0.0.1:9"), 5, "cannot reach the hub at"),
        (("feedback", "revoke", "--to", "http://127.0.0.1:9"), 2, "say what to take back"),
        (("feedback", "revoke", "0" * 64, "--to", "http://127.0.0.1:9"), 2, "there is no key in"),
    ],
)
def test_what_cannot_be_is_told(kvflags, tmp_path, monkeypatch, arguments, code, says):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    (tmp_path / "not.json").write_text("{")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "any.json").write_text('{"bundle": {}, "key": "", "signature": ""}')
    result = kvflags(*arguments, "--json")
    assert result.code == code
    assert says in result.document["error"]["message"]


def test_a_collector_that_is_no_hub_refuses(pair, kvflags):
    result = kvflags("feedback", "submit", KEY, "--to", pair.url, "--json")
    assert (result.code, result.document["error"]["code"]) == (2, "not_a_hub")


def test_two_at_once_make_one_key(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: encoded(private_key(tmp_path / "own.key")), range(32)))
    assert len(keys) == 1
