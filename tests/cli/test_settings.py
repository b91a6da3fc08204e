# SPDX-License-Identifier: Apache-2.0
import pytest

from kvflags.errors import UsageError
from kvflags_cli.settings import Connection, connection, this_author


def test_the_option_goes_before_the_environment_and_that_before_the_default():
    environ = {"KVFLAGS_COLLECTOR_URL": "https://collector:1/", "KVFLAGS_TOKEN": "secret\n"}
    assert connection("http://here:2", environ) == Connection("http://here:2", "secret", "--collector")
    assert connection(None, environ) == Connection("https://collector:1", "secret", "KVFLAGS_COLLECTOR_URL")
    assert connection(None, {"KVFLAGS_COLLECTOR_URL": ""}) == Connection("http://127.0.0.1:4318", "", "the default")


@pytest.mark.parametrize(
    "url", ["", "collector:4318", "ftp://x", "http://", "http://x:0", "http://x:99999", "http://a b"]
)
def test_a_malformed_address_is_refused(url):
    with pytest.raises(UsageError) as raised:
        connection(url, {})
    assert raised.value.message == "--collector: it is not a collector's address"
    assert raised.value.hint == "give an address such as http://127.0.0.1:4318"


def test_a_password_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(UsageError) as raised:
        connection(None, {"KVFLAGS_COLLECTOR_URL": "http://me:secret@collector"})
    assert raised.value.message == (
        "KVFLAGS_COLLECTOR_URL: an address holds no user name or password; the token goes into KVFLAGS_TOKEN"
    )


@pytest.mark.parametrize(
    ("url", "loopback"),
    [("http://127.0.0.1:1", True), ("http://[::1]:1", True), ("http://localhost", True), ("http://10.0.0.1", False)],
)
def test_loopback(url, loopback):
    assert Connection(url, "", "").loopback is loopback


def test_the_author_is_somebody_at_a_host(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "node1")
    monkeypatch.setenv("LOGNAME", "ada")
    assert this_author({}) == "ada@node1"


def test_with_a_token_its_name_is_the_author():
    assert this_author({"KVFLAGS_TOKEN": "secret"}) is None
