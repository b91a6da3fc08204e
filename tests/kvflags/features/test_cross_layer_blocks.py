# SPDX-License-Identifier: Apache-2.0
"""The gate, the layout and the effective check of cross-layer blocks, rule by rule."""

import re
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
    ({"architecture": "DeepseekV4ForCausalLM"}, "deepseek_v4", RuleClass.UNSAFE),
    ({"vllm": "0.29.0", "model_class": "hybrid"}, "hybrid_failed_transfer", RuleClass.UNSAFE),
    ({"vllm": "0.30.0", "pp": 2}, "pipeline_parallel_asserts", RuleClass.UNSAFE),
    ({"vllm": "0.21.0"}, "handshake_kills_decode", RuleClass.UNSAFE),
    ({"kv_cache_dtype": "fp8_per_token_head"}, "per_token_head_dropped", RuleClass.INEFFECTIVE),
    ({"kv_cache_dtype": "nvfp4"}, "nvfp4_kv_cache", RuleClass.UNSUPPORTED),
    ({"backend": "FLASHINFER", "block_size": 128}, "flashinfer_block_128", RuleClass.UNSUPPORTED),
    ({"backend": "FLASHINFER_MLA", "model_class": "mla", "vllm": "0.33.0"}, "backend", RuleClass.INEFFECTIVE),
]

# Releases that are refused as a whole for now, and the rules that say what would be wrong there: an engine that meets
# the rule, and one beside it that does not.
OLDER = [
    ("packed_hybrid", {"vllm": "0.24.0", "model_class": "hybrid"}, {"vllm": "0.23.0", "model_class": "hybrid"}),
    ("packed_hybrid", {"vllm": "0.28.1", "model_class": "hybrid"}, {"vllm": "0.28.0"}),
    (
        "hybrid_failed_transfer",
        {"vllm": "0.18.1", "model_class": "hybrid"},
        {"vllm": "0.30.0", "model_class": "hybrid"},
    ),
    ("per_token_head_corrupts", {"vllm": "0.26.0", "kv_cache_dtype": "int8_per_token_head"}, {"vllm": "0.26.0"}),
    (
        "per_token_head_corrupts",
        {"vllm": "0.16.0", "kv_cache_dtype": "fp8_per_token_head"},
        {"vllm": "0.27.0", "kv_cache_dtype": "fp8_per_token_head"},
    ),
    ("pipeline_parallel_asserts", {"vllm": "0.26.0", "pp": 2}, {"vllm": "0.25.0", "pp": 2}),
    ("pipeline_parallel_asserts", {"vllm": "0.29.0", "pp": 4}, {"vllm": "0.31.0", "pp": 4}),
    ("handshake_kills_decode", {"vllm": "0.16.0"}, {"vllm": "0.22.0"}),
    ("v2_runner", {"vllm": "0.28.0", "runner": "v2"}, {"vllm": "0.28.0", "runner": "v1"}),
    ("v2_runner", {"vllm": "0.22.0", "runner": "v2"}, {"vllm": "0.29.0", "runner": "v2"}),
    ("mla_before_layouts", {"vllm": "0.28.0", "model_class": "mla"}, {"vllm": "0.29.0", "model_class": "mla"}),
    (
        "triton_before_support",
        {"vllm": "0.19.0", "backend": "TRITON_ATTN"},
        {"vllm": "0.20.0", "backend": "TRITON_ATTN"},
    ),
    (
        "blackwell_without_trtllm",
        {"vllm": "0.16.0", "backend": "FLASHINFER", "gpu": "NVIDIA B200"},
        {"vllm": "0.18.1", "backend": "FLASHINFER", "gpu": "NVIDIA B200"},
    ),
    ("blackwell_without_trtllm", {"vllm": "0.17.0", "backend": "FLASHINFER", "gpu": None}, {"vllm": "0.17.0"}),
    ("mla_without_rows", {"vllm": "0.30.0", "model_class": "mla"}, {"vllm": "0.33.0", "model_class": "mla"}),
    ("one_kv_head_per_rank", {"vllm": "0.33.0", "kv_heads_per_rank": 1}, {"vllm": "0.29.0", "kv_heads_per_rank": 1}),
    ("flashinfer_block_128", {"backend": "FLASHINFER", "block_size": 128}, {"backend": "FLASHINFER", "block_size": 64}),
    (
        "flashinfer_block_128",
        {"backend": "FLASHINFER", "block_size": 128, "runner": "v2"},
        {"backend": "FLASHINFER", "block_size": 128, "runner": "v1"},
    ),
]

ELIGIBLE = [
    {},
    {"backend": "TRITON_ATTN"},
    {"backend": "FLASHINFER"},
    {"backend": "CPU_ATTN", "lab": True, "gpu": None},
    {"vllm": "0.29.0", "kv_heads_per_rank": 1},
    {"vllm": "0.33.1", "model_class": "mla", "kv_heads_per_rank": 1},
    {"vllm": "0.33.1", "model_class": "mla", "backend": "FLASH_ATTN_MLA"},
    {"vllm": "0.29.0", "model_class": "mla", "backend": "TRITON_MLA"},
    {"kv_cache_dtype": "fp8"},
    {"backend": "FLASHINFER", "block_size": 64},
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


def _codes(change):
    return {refusal.code for refusal in refusals(CROSS_LAYER_BLOCKS.rules, replace(GOOD, **change))}


@pytest.mark.parametrize(("code", "met", "beside"), OLDER)
def test_a_rule_holds_in_its_releases_and_for_its_facts_only(code, met, beside):
    assert code in _codes(met)
    assert code not in _codes(beside)


def test_every_rule_is_shown_by_a_fault():
    shown = {code.removesuffix(":unknown") for _, code, _ in ONE_FAULT} | {code for code, *_ in OLDER}
    assert {rule.code for rule in CROSS_LAYER_BLOCKS.rules} == shown


def test_every_rule_can_be_looked_up_and_read():
    rules = CROSS_LAYER_BLOCKS.rules
    assert len({rule.code for rule in rules}) == len(rules)
    for rule in rules:
        assert re.fullmatch(r"(?:[\w.-]+/[\w.-]+)?#\d+|vLLM \d+\.\d+\.\d+", rule.reference), rule.code
        assert rule.says[0].isupper()
        assert not rule.says.endswith(".")


@pytest.mark.parametrize("release", [None, "main", "0.34.0"])
def test_a_release_that_is_not_known_is_refused_whatever_else_holds(release):
    assert {code.partition(":")[0] for code in _codes({"vllm": release})} >= {"release"}


@pytest.mark.parametrize(
    "fact", sorted({name for rule in CROSS_LAYER_BLOCKS.rules if rule.holds_in("0.32.0") for name in rule.needs})
)
def test_a_fact_that_is_not_known_is_a_no(fact):
    assert any(code.endswith(":unknown") for code in _codes({fact: None}))


@pytest.mark.parametrize(
    "change",
    [{"vllm": "0.28.0"}, {"kv_heads_per_rank": 1}, {"kv_heads_per_rank": None}, {"model_class": "mla"}, {"vllm": None}],
)
def test_no_layout_is_asked_for_where_none_makes_rows(change):
    assert CROSS_LAYER_BLOCKS.layout(replace(GOOD, **change)) is None


@pytest.mark.parametrize(("regions", "layers", "held"), [(1, 8, True), (8, 8, False), (1, 1, False), (2, 8, False)])
def test_effective_means_whole_rows(regions, layers, held):
    assert CROSS_LAYER_BLOCKS.effective(regions, layers) is held
