# SPDX-License-Identifier: Apache-2.0
"""What a canary found: kept, an alarm, feedback, and the end of a treated generation."""

from __future__ import annotations

from typing import Any

import pytest

from kvflags.errors import NotFound
from kvflags_collector.feedback.signals import signals
from kvflags_collector.rollout import alarms, canaries
from kvflags_collector.store.feedback_tables import canaries as table

KEY = "cross-layer-blocks"
SAYS = (
    "c/ns/a g2: 3 of 8 prompts get other logprobs from a fetched KV cache than from a local prefill, by up to 2.5 nats"
)


def treated(fleet):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    fleet.pair(generation="g2")


def tell(fleet, outcome: str, generation: str = "g2", deployment: str = "c/ns/a") -> dict[str, Any]:
    bad = outcome == "mismatch"
    found = {"outcome": outcome, "compared": 0 if outcome == "undecided" else 8, "mismatched": 3 if bad else 0}
    found |= {"max_delta": 2.5 if bad else 0.01, "tolerance": 0.1}
    with fleet.db.write() as conn:
        return canaries.take(conn, (deployment, generation), found, author="cron", now=fleet.now)


def standing(fleet):
    return [alarm for alarm in fleet.ask(alarms.listing) if alarm["ended_at"] is None]


def pin(fleet):
    return fleet.rows("pins", "generation", "variant", "state", "condemned_reason")


def test_a_match_is_kept_and_changes_nothing(fleet):
    treated(fleet)
    before = fleet.everything()
    assert tell(fleet, "match")["condemned"] == []
    assert fleet.everything() == before
    assert fleet.rows(table.name, "generation", "epoch", "outcome", "compared", "author") == [
        ("g2", 1, "match", 8, "cron")
    ]


def test_a_mismatch_condemns_a_treated_generation_and_says_so_once(fleet):
    treated(fleet)
    assert tell(fleet, "mismatch")["condemned"] == [KEY]
    tell(fleet, "mismatch")
    assert ("g2", "on", "condemned", "canary_mismatch") in pin(fleet)
    assert [(alarm["kind"], alarm["says"]) for alarm in standing(fleet)] == [("canary_mismatch", SAYS)]
    given = fleet.ask(signals, KEY, fleet.now)
    assert [(one["sign"], one["tags"], one["comment"]) for one in given] == [("negative", ["canary_mismatch"], SAYS)]
    # Whoever joins still agrees with the engines that are to be replaced.
    joiner = fleet.register("joiner", generation="g2", role="decode")
    assert (joiner["variant"], joiner["state"]) == ("on", "condemned")


def test_the_alarm_stands_until_the_generation_is_gone(fleet):
    treated(fleet)
    tell(fleet, "mismatch")
    # A later match does not take back what was served.
    tell(fleet, "match")
    names = tuple(f"c/ns/a-g2-{role}" for role in ("prefill", "decode"))
    fleet.passes(300, beating=names)
    assert len(standing(fleet)) == 1
    fleet.passes(300)
    assert standing(fleet) == []


def test_a_mismatch_without_the_feature_condemns_nothing(fleet):
    treated(fleet)
    assert tell(fleet, "mismatch", generation="g1")["condemned"] == []
    assert [alarm["generation"] for alarm in standing(fleet)] == ["g1"]
    assert ("g1", "off", "pinned", None) in pin(fleet)


def test_what_counts_for_the_verdict_is_treated_and_compared(fleet):
    treated(fleet)
    tell(fleet, "mismatch", generation="g1")
    assert fleet.ask(canaries.mismatched, KEY, fleet.now) == []
    tell(fleet, "mismatch")
    assert fleet.ask(canaries.mismatched, KEY, fleet.now) == ["c/ns/a"]
    # As it stood before.
    assert fleet.ask(canaries.mismatched, KEY, fleet.now - 1) == []


def test_the_report_counts_deployments_not_runs(fleet):
    treated(fleet)
    for outcome in ("match", "mismatch", "undecided"):
        tell(fleet, outcome)
    assert fleet.ask(canaries.counts, KEY, fleet.now) == {
        "on": {"deployments": 1, "mismatched": 1, "max_delta": 2.5},
    }


def test_a_deployment_that_nobody_knows_is_refused(fleet):
    fleet.create()
    with pytest.raises(NotFound, match="no deployment"):
        tell(fleet, "match", deployment="c/ns/typo")
    assert fleet.rows(table.name) == []
