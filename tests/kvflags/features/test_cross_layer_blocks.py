# SPDX-License-Identifier: Apache-2.0
"""The gate, the layout and the effective check of cross-layer blocks, rule by rule."""

from dataclasses import replace

import pytest

from kvflags.features import CROSS_LAYER_BLOCKS
from kvflags.flags import Facts, RuleClass, refusals

GOOD = Facts(
    vllm="0.32.0",
    nixl="1.5.1",
    model_class="gqa",
    architecture="LlamaForCausalLM",
    backend="FLASH_ATTN",
    block_size=16,
    kv_heads_per_rank=4,
    connector="NixlConnector",
    gpu="NVIDIA H100",
    isolation="recreate",
)

# One change to an eligible engine, and the one rule that then refuses.
ONE_FAULT = [
    ({"model_class": "mla_sparse"}, "sparse_mla", RuleClass.UNSAFE),
    ({"vllm": "0.28.0"}, "release", RuleClass.UNSUPPORTED),
    ({"vllm": "0.34.0"}, "release", RuleClass.UNSUPPORTED),
    ({"vllm": "main"}, "release", RuleClass.UNSUPPORTED),
    ({"connector": "NixlPushConnector"}, "connector", RuleClass.UNSUPPORTED),
    ({"nested_in": "MultiConnector"}, "nested", RuleClass.UNSUPPORTED),
    ({"model_class": "hybrid"}, "model_class", RuleClass.UNSUPPORTED),
    ({"kv_heads_per_rank": 1}, "one_kv_head_per_rank", RuleClass.INEFFECTIVE),
    ({"model_class": "mla"}, "mla_without_rows", RuleClass.INEFFECTIVE),
    ({"pp": 2}, "pipeline_parallel", RuleClass.UNSUPPORTED),
    ({"dcp": 2}, "decode_context_parallel", RuleClass.UNSUPPORTED),
    ({"backend": "ROCM_ATTN"}, "backend", RuleClass.INEFFECTIVE),
    ({"backend": "CPU_ATTN"}, "backend", RuleClass.INEFFECTIVE),
    ({"backend": "FLASHINFER", "gpu": "NVIDIA B200"}, "flashinfer_on_blackwell", RuleClass.INEFFECTIVE),
    ({"backend": "FLASHINFER", "gpu": None}, "flashinfer_on_blackwell", RuleClass.INEFFECTIVE),
    ({"isolation": "unknown"}, "isolation", RuleClass.UNSUPPORTED),
    ({"backend": None}, "backend:unknown", RuleClass.UNSUPPORTED),
]

ELIGIBLE = [
    {},
    {"backend": "TRITON_ATTN"},
    {"backend": "FLASHINFER"},
    {"backend": "CPU_ATTN", "lab": True, "gpu": None},
    {"vllm": "0.29.0", "kv_heads_per_rank": 1},
    {"vllm": "0.33.1", "model_class": "mla", "kv_heads_per_rank": 1},
]


@pytest.mark.parametrize(("change", "code", "rule_class"), ONE_FAULT)
def test_one_fault_is_refused_by_its_rule(change, code, rule_class):
    met = refusals(CROSS_LAYER_BLOCKS.rules, replace(GOOD, **change))
    assert (met[0].code, met[0].rule_class) == (code, rule_class)
    assert met[0].says


@pytest.mark.parametrize("change", ELIGIBLE)
def test_what_works_is_eligible_and_has_a_layout(change):
    facts = replace(GOOD, **change)
    assert refusals(CROSS_LAYER_BLOCKS.rules, facts) == ()
    assert CROSS_LAYER_BLOCKS.layout(facts) == "BHLNC"


def test_every_rule_is_shown_by_a_fault():
    shown = {code.removesuffix(":unknown") for _, code, _ in ONE_FAULT}
    assert {rule.code for rule in CROSS_LAYER_BLOCKS.rules} == shown


@pytest.mark.parametrize(
    "change",
    [{"vllm": "0.28.0"}, {"kv_heads_per_rank": 1}, {"kv_heads_per_rank": None}, {"model_class": "mla"}, {"vllm": None}],
)
def test_no_layout_is_asked_for_where_none_makes_rows(change):
    assert CROSS_LAYER_BLOCKS.layout(replace(GOOD, **change)) is None


@pytest.mark.parametrize(("regions", "layers", "held"), [(1, 8, True), (8, 8, False), (1, 1, False), (2, 8, False)])
def test_effective_means_whole_rows(regions, layers, held):
    assert CROSS_LAYER_BLOCKS.effective(regions, layers) is held
