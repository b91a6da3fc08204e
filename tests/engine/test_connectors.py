# SPDX-License-Identifier: Apache-2.0
"""NIXL's connector, nested in a MultiConnector beside another.

The pulling one: a decode engine of the pushing one can lose its first registration and wait for ever (vllm#50754).
"""

import pytest
from fleet import FLAG, eventually

from kvflags_cli.demo.traffic import prompts

pytestmark = pytest.mark.engine

SOME = prompts("nested", 4, seed=9, longest=300)


@pytest.fixture(scope="module")
def pair(fleet):
    nixl = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
    storage = {"shared_storage_path": str(fleet.folder / "storage")}
    other = {"kv_connector": "ExampleConnector", "kv_role": "kv_both", "kv_connector_extra_config": storage}
    options = {"connector": "MultiConnector", "extra_config": {"connectors": [nixl, other]}, "dtype": "bfloat16"}
    fleet.target(percent=100)
    pair = fleet.pair("nested", "r1", options=options).start().wait_ready()
    yield pair
    pair.stop()


def test_a_nested_connector_is_observed_and_never_treated(fleet, pair):
    for request_id, tokens in SOME.items():
        crossed, local = pair.request(request_id, tokens, 8), pair.local(f"local-{request_id}", tokens, 8)
        assert (crossed.finish_reason, crossed.tokens, crossed.logprobs) == ("length", local.tokens, local.logprobs)
    eventually(lambda: fleet.transferred("nested", "r1") == len(SOME), "the spans")
    row = eventually(lambda: (r := fleet.row("nested", "r1")) and r["refusals"] and r, "the refusal")
    assert (row["variant"], row["failed"], row["dropped"]) == ("off", 0, 0)
    assert (row["layout"]["requested"], row["layout"]["regions"]) == ("LBHNC", 8)
    assert "nested" in {refusal["code"] for refusal in row["refusals"]}
    assert fleet.get("flags", FLAG, "explain", deployment=pair.name)["pin"]["variant"] == "off"
