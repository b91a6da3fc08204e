# SPDX-License-Identifier: Apache-2.0
"""The collector fails in every way it can; engines answer as if it had never been there, and nothing is lost."""

import pytest
from fleet import eventually
from link import Link, State

from kvflags_cli.demo.traffic import prompts

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def link(fleet):
    one = Link(fleet.service.url, State.SILENT)
    yield one
    one.close()


@pytest.fixture(scope="module")
def pair(fleet, link):
    """Started while the collector accepts and never answers."""
    # Outcomes every 5 s; what an outage keeps of them is 60 exports.
    environ = {"OTEL_METRIC_EXPORT_INTERVAL": "5000"}
    return fleet.pair("outage", "r1", url=link.url, environ=environ).start().wait_ready()


@pytest.mark.parametrize("state", [State.SILENT, State.BROKEN, State.CUT], ids=lambda state: state.name.lower())
def test_requests_are_answered_as_ever(pair, link, state):
    link.state = state
    for request_id, tokens in prompts(state.name, 4, seed=7, longest=300).items():
        crossed, local = pair.request(request_id, tokens, 8), pair.local(f"local-{request_id}", tokens, 8)
        assert (crossed.finish_reason, crossed.tokens, crossed.logprobs) == ("length", local.tokens, local.logprobs)


def test_what_was_buffered_arrives_once_the_collector_answers(fleet, pair, link):
    link.state = State.UP
    eventually(lambda: fleet.transferred("outage", "r1") == 12, "the buffered spans")
    rows = fleet.rows("outage", "r1")
    assert {(row["failed"], row["dropped"]) for row in rows if row["transfers"]} == {(0, 0)}
    # It says what it runs when it registers at last, a heartbeat after its spans, and that becomes the pin.
    variants = eventually(
        lambda: [row["variant"] for row in fleet.rows("outage", "r1") if row["variant"]], "the pin of what runs"
    )
    assert variants == ["off"]


def test_the_outcomes_of_every_request_arrive_too(fleet, pair):
    """Twelve prefills, and each prompt twice on the decode engine; eight tokens of each there, one on prefill."""
    totals = eventually(
        lambda: (sums := fleet.outcomes("outage", "r1")).get("requests") == 36 and sums, "the buffered outcomes"
    )
    assert (totals["output_tokens"], totals["time_to_first_token"], totals["inter_token_latency"]) == (204, 36, 168)
    assert totals["kv_blocks"] % 128 == 0
    # Front ends that could not register say the epoch as well, once their workers have.
    eventually(lambda: fleet.outcomes("outage", "r1", epoch=1).get("kv_blocks"), "outcomes of the pin's epoch")


def test_a_collector_killed_in_the_middle_comes_back_to_everything(fleet, pair, link):
    fleet.service.kill()
    results = pair.send(prompts("killed", 6, seed=8, longest=300), 8)
    assert {result.finish_reason for result in results.values()} == {"length"}
    fleet.service.start()
    eventually(lambda: fleet.transferred("outage", "r1") == 18, "the spans of the outage")
