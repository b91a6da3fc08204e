# SPDX-License-Identifier: Apache-2.0
"""`kvflags feedback` against a real collector."""

from __future__ import annotations

import io

import pytest

KEY = "clb"
GIVE = ("feedback", "give", KEY, "--deployment", "c/ns/a", "--author", "bob")


@pytest.fixture
def pair(fleet, kvflags):
    assert kvflags("flags", "create", KEY, "--feature", "cross_layer_blocks").code == 0
    fleet.pair("c/ns/a", "r1")
    return fleet


def test_give_edit_withdraw_and_read(pair, kvflags):
    given = kvflags(*GIVE, "--negative", "--tag", "latency", "--tag", "crash", "--comment", "p99 is up", "--json")
    data = given.document["data"]
    assert (data["id"], data["sign"], data["tags"]) == ("g1", "negative", ["crash", "latency"])
    edited = kvflags("feedback", "edit", KEY, "g1", "--positive", "--reason", "it was the network", "--json")
    assert edited.document["data"]["sign"] == "positive"
    ended = kvflags("feedback", "withdraw", KEY, "g1", "--reason", "wrong one", "--author", "ann")
    assert "withdrawn" in ended.out
    shown = kvflags("feedback", "show", KEY, "g1").out
    assert all(words in shown for words in ("a-r1-decode", "0.32.0", "it was the network", "wrong one"))
    assert "withdrawn" in kvflags("feedback", "list", KEY).out


def test_a_hostile_comment_does_nothing_to_the_terminal(pair, kvflags, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("\x1b]0;owned\x07 \u202egnp [red]x[/red]"))
    kvflags(*GIVE, "--negative", "--comment", "-")
    for arguments in (("feedback", "list", KEY), ("feedback", "show", KEY, "g1"), ("report", KEY)):
        for options in ((), ("--json",)):
            out = kvflags(*arguments, *options).out
            assert {"\x1b", "\x07", "\u202e"}.isdisjoint(out)
            assert "[red]x[/red]" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*GIVE, "--comment", "x"), "for the better or for the worse"),
        ((*GIVE, "--positive", "--tag", "price", "--comment", "x"), "price"),
        (("feedback", "give", KEY, "--deployment", "no/such/one", "--positive", "--comment", "x"), "no/such/one"),
        (("feedback", "withdraw", KEY, "g7", "--reason", "x"), "g7"),
        (("feedback", "edit", KEY, "g7", "--reason", "x"), "nothing to change"),
    ],
)
def test_what_is_refused(pair, kvflags, arguments, says):
    result = kvflags(*arguments)
    assert result.code == 2
    assert says in result.err
    assert "hint:" in result.err
