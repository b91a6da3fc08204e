# SPDX-License-Identifier: Apache-2.0
"""Which layout is asked for: `on`, and nothing else, changes what vLLM would do."""

import pytest

from kvflags.connector.requested import requested


def test_on_asks_for_whole_rows(told):
    assert requested(told("on"), {}) == "BHLNC"


@pytest.mark.parametrize("variant", ["off", None])
def test_off_and_no_flag_leave_it_to_vllm(told, variant):
    assert requested(told(variant), {}) is None


def test_a_connector_that_nobody_decided_for_leaves_it_to_vllm():
    assert requested(None, {}) is None


def test_vllms_own_setting_wins(told):
    assert requested(told("on"), {"VLLM_KV_CACHE_LAYOUT": "LBHNC"}) is None
    assert requested(told("on"), {"VLLM_KV_CACHE_LAYOUT": ""}) == "BHLNC"


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"vllm": "0.32.0", "model_class": "gqa", "kv_heads_per_rank": 1},
        {"vllm": "0.28.0", "model_class": "gqa", "kv_heads_per_rank": 4},
        {"vllm": "0.32.0", "model_class": "mla", "kv_heads_per_rank": 1},
        {"vllm": "0.32.0", "model_class": "gqa", "kv_heads_per_rank": 4, "nested_in": "MultiConnector"},
    ],
)
def test_where_no_layout_makes_rows_a_pinned_on_asks_for_none(told, facts):
    assert requested(told("on", facts=facts), {}) is None
