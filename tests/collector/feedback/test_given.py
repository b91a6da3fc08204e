# SPDX-License-Identifier: Apache-2.0
"""Given feedback in the store: as it stood at any time, on both databases."""

from __future__ import annotations

from kvflags_collector.feedback import given
from kvflags_collector.feedback.signals import signals
from kvflags_collector.rollout.audit import Actor

SAID = {"sign": "negative", "tags": ["crash"], "comment": "it hung"}
ANN = Actor(author="ann", reason="looked again")


def test_any_past_time_can_be_read_again(compared):
    key, times = compared.key, []
    with compared.db.write() as conn:
        for change in (
            lambda: given.give(conn, key, "c/ns/a", SAID, author="bob", now=compared.now),
            lambda: given.edit(conn, key, "g1", {"sign": "positive"}, actor=ANN, revision=1, now=compared.now),
            lambda: given.give(conn, key, "c/ns/b", SAID, author="bob", now=compared.now),
            lambda: given.withdraw(conn, key, "g1", actor=ANN, revision=None, now=compared.now),
        ):
            times.append(compared.now)
            change()
            compared.passes(1)
    with compared.db.read() as conn:
        stood = [[(one["id"], one["sign"], one["withdrawn"]) for one in signals(conn, key, when)] for when in times]
        assert signals(conn, key, times[0] - 1) == []
    assert stood == [
        [("g1", "negative", False)],
        [("g1", "positive", False)],
        [("g2", "negative", False), ("g1", "positive", False)],
        [("g2", "negative", False), ("g1", "positive", True)],
    ]


def test_the_arm_and_the_stratum_are_filled_in(compared):
    with compared.db.write() as conn:
        found = {
            name: given.give(conn, compared.key, name, SAID, author="bob", now=compared.now)
            for name in ("c/ns/a", "c/ns/b")
        }
    assert {one["arm"] for one in found.values()} == {"treatment", "control"}
    assert {one["generation"] for one in found.values()} == {"r2"}
    assert {one["stratum"] for one in found.values()} == {"FLASH_ATTN, gqa, vLLM 0.32, 4 heads, block 16"}
    for one in found.values():
        resolved = {"treatment": "BHLNC", "control": "LBHNC"}[one["arm"]]
        assert {engine["resolved"] for engine in one["engines"] if engine["generation"] == "r2"} == {resolved}
        assert one["releases"]["nixl"] == ["1.5.1"]
