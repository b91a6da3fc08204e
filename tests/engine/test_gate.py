# SPDX-License-Identifier: Apache-2.0
"""Where the feature must not run, and where kvflags must stand aside."""

import pytest
from fleet import FLAG, eventually

from kvflags_cli.demo.engine import Engine

pytestmark = pytest.mark.engine


def only_prefill(pair):
    """Start one engine of the pair: enough where no transfer is needed."""
    pair.prefill = pair._engine("prefill", "kv_producer", {}).start().wait_ready()
    return pair


def test_one_kv_head_per_rank_is_refused_with_the_reason(fleet):
    fleet.target(percent=100)
    pair = only_prefill(fleet.pair("one-head", "r1", kv_heads=1))
    try:
        explained = fleet.get("flags", FLAG, "explain", deployment=pair.name)
        assert explained["pin"]["variant"] == "off"
        assert explained["pin"]["reason"] == "gate:one_kv_head_per_rank"
        (row,) = eventually(lambda: [r for r in fleet.engines("one-head") if r["layout"]], "its heartbeat")
        assert (row["layout"]["requested"], row["facts"]["kv_heads_per_rank"]) == ("LBHNC", 1)
        refusals = eventually(
            lambda: (row := fleet.row("one-head", "r1")) and row["refusals"], "the refusal in the report"
        )
        assert refusals[0]["code"] == "one_kv_head_per_rank"
        assert "more descriptors" in refusals[0]["says"]
    finally:
        pair.prefill.stop()


def test_with_nixl_telemetry_switched_off_kvflags_stands_aside_and_says_so(fleet):
    pair = fleet.pair("no-telemetry", "r1", environ={"NIXL_TELEMETRY_ENABLE": "0"})
    only_prefill(pair)
    try:
        (row,) = eventually(lambda: fleet.engines("no-telemetry"), "its heartbeat")
        assert "nixl_telemetry_disabled" in row["problems"]
        assert "NIXL_TELEMETRY_ENABLE" in pair.prefill.log.read_text()
    finally:
        pair.prefill.stop()


def test_disabled_leaves_plain_vllm(fleet):
    pair = fleet.pair("disabled", "r1", environ={"KVFLAGS_DISABLED": "1"})
    only_prefill(pair)
    try:
        assert isinstance(pair.prefill, Engine)
        assert pair.prefill.submit("plain", [7] * 50, params=None, length=4).result(60).finish_reason == "length"
        assert fleet.engines("disabled") == []
        assert "vllm.kvflags" not in pair.prefill.log.read_text()
    finally:
        pair.prefill.stop()
