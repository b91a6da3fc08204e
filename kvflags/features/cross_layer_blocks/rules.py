# SPDX-License-Identifier: Apache-2.0
"""The gate of cross-layer blocks, as data: each rule with its class and the public report behind it.

Rules are read top to bottom and the first refusal gives the reason, so what can never be helped stands before what an
operator can change. References are issues of vllm-project/vllm unless a release is named.
"""

from __future__ import annotations

from kvflags.features.cross_layer_blocks.layouts import layout
from kvflags.flags import Facts, Isolation, Rule, RuleClass, minor

__all__ = ["BACKENDS", "MUST_MATCH", "RULES"]

# Prefill and decode must share these: a differing layout, block size, TP or release fails (or corrupts) every transfer.
MUST_MATCH = ("vllm", "backend", "block_size", "tp", "kv_heads_per_rank")

_CONNECTORS = frozenset({"NixlConnector", "NixlPullConnector"})
_EFFECTIVE_BACKENDS = frozenset({"FLASH_ATTN", "TRITON_ATTN", "FLASHINFER"})
# On SM100 FlashInfer supports LBHNC and BLHNC only, neither of which makes rows for GQA.
_BLACKWELL = ("B100", "B200", "B300", "GB200", "GB300")

# Every backend name an operator may use in a target; the rules say which of them can be treated.
BACKENDS = _EFFECTIVE_BACKENDS | {
    "CPU_ATTN",
    "CUTLASS_MLA",
    "FLASHINFER_MLA",
    "FLASHMLA",
    "FLASH_ATTN_MLA",
    "FLEX_ATTENTION",
    "ROCM_AITER_FA",
    "ROCM_AITER_UNIFIED_ATTN",
    "ROCM_ATTN",
    "TRITON_MLA",
}


def _release_out_of_range(facts: Facts) -> bool:
    release = minor(facts.vllm)
    return release is None or not (0, 29) <= release <= (0, 33)


def _backend_without_rows(facts: Facts) -> bool:
    # The CPU's kernels follow the strides, but only a plugin of the demo and the tests declares the layout there.
    return not (facts.backend in _EFFECTIVE_BACKENDS or (facts.backend == "CPU_ATTN" and facts.lab))


def _flashinfer_on_blackwell(facts: Facts) -> bool:
    return facts.backend == "FLASHINFER" and (facts.gpu is None or any(name in facts.gpu for name in _BLACKWELL))


RULES: tuple[Rule, ...] = (
    Rule(
        "sparse_mla",
        RuleClass.UNSAFE,
        ("model_class",),
        lambda facts: facts.model_class == "mla_sparse",
        "Sparse MLA accepts the layout and then crashes while binding its cache",
        "#55431",
    ),
    Rule(
        "release",
        RuleClass.UNSUPPORTED,
        ("vllm",),
        _release_out_of_range,
        "This vLLM release is not between 0.29 and 0.33",
        "vLLM 0.29.0 (#51718)",
    ),
    Rule(
        "connector",
        RuleClass.UNSUPPORTED,
        ("connector",),
        lambda facts: facts.connector not in _CONNECTORS,
        "Only the pulling NIXL connector is known to work with the layout",
        "#50754",
    ),
    Rule(
        "nested",
        RuleClass.UNSUPPORTED,
        (),
        lambda facts: facts.nested_in is not None,
        "Inside a MultiConnector the siblings' layouts would have to be equal, else the engine does not start",
        "vLLM 0.29.0",
    ),
    Rule(
        "model_class",
        RuleClass.UNSUPPORTED,
        ("model_class",),
        lambda facts: facts.model_class not in {"gqa", "mla", "mla_sparse"},
        "Models with several kinds of KV cache exclude the layout",
        "#47054",
    ),
    Rule(
        "one_kv_head_per_rank",
        RuleClass.INEFFECTIVE,
        ("model_class", "kv_heads_per_rank"),
        lambda facts: facts.model_class == "gqa" and facts.kv_heads_per_rank == 1 and layout(facts) is None,
        "With one KV head per rank the layout would need more descriptors than the default, not fewer",
        "vLLM 0.30.0",
    ),
    Rule(
        "mla_without_rows",
        RuleClass.INEFFECTIVE,
        ("model_class",),
        lambda facts: facts.model_class == "mla" and layout(facts) is None,
        "From 0.30 to 0.32 no layout registers whole rows for MLA",
        "vLLM 0.30.0",
    ),
    Rule(
        "pipeline_parallel",
        RuleClass.UNSUPPORTED,
        (),
        lambda facts: facts.pp > 1,
        "With pipeline parallelism a single region fails an assertion (0.29, 0.30) or is not implemented",
        "vLLM 0.29.0",
    ),
    Rule(
        "decode_context_parallel",
        RuleClass.UNSUPPORTED,
        (),
        lambda facts: facts.dcp > 1,
        "Decode context parallelism is not known to work with the layout",
        "vLLM 0.29.0",
    ),
    Rule(
        "backend",
        RuleClass.INEFFECTIVE,
        ("backend",),
        _backend_without_rows,
        "This attention backend does not support the layout, so vLLM would drop the request for it",
        "vLLM 0.29.0",
    ),
    Rule(
        "flashinfer_on_blackwell",
        RuleClass.INEFFECTIVE,
        ("backend",),
        _flashinfer_on_blackwell,
        "FlashInfer on Blackwell (or on a GPU that is not known) supports no layout with whole rows",
        "#33192",
    ),
    Rule(
        "isolation",
        RuleClass.UNSUPPORTED,
        (),
        lambda facts: facts.isolation == Isolation.UNKNOWN,
        "It is not stated what keeps generations apart; set KVFLAGS_ISOLATION to recreate, bluegreen or router",
    ),
)
