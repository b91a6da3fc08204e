# SPDX-License-Identifier: Apache-2.0
"""The gate of cross-layer blocks, as data: each rule with its class, its releases and the public report behind it.

Rules are read top to bottom and the first refusal gives the reason: first what crashes or corrupts, then what can never
be helped, then what an operator can change. References are issues of vllm-project/vllm unless a project or a release
is named. The page "Will it work on my engine?" is generated from this table.
"""

from __future__ import annotations

from kvflags.features.cross_layer_blocks.layouts import layout
from kvflags.features.cross_layer_blocks.predicates import (
    BACKENDS,
    MODEL_CLASSES,
    has_no_rows,
    is_flashinfer_on_blackwell,
    is_latent,
    is_per_token_head,
    release_out_of_range,
)
from kvflags.flags import Isolation, Rule, RuleClass

__all__ = ["BACKENDS", "MUST_MATCH", "RULES"]

# Prefill and decode must share these: a differing layout, block size, TP or release fails (or corrupts) every transfer.
MUST_MATCH = ("vllm", "backend", "block_size", "tp", "kv_heads_per_rank")

_CONNECTORS = frozenset({"NixlConnector", "NixlPullConnector"})

_UNSAFE = (
    Rule(
        "sparse_mla",
        RuleClass.UNSAFE,
        ("model_class",),
        lambda facts: facts.model_class == "mla_sparse",
        "Sparse MLA accepts the layout and then crashes while binding its cache",
        "#55431",
    ),
    Rule(
        "deepseek_v4",
        RuleClass.UNSAFE,
        (),
        lambda facts: (facts.architecture or "").startswith("DeepseekV4"),
        "DeepSeek V4 answers wrongly with packed blocks: its accuracy fell from 95 % to about 0",
        "#47783",
    ),
    Rule(
        "handshake_kills_decode",
        RuleClass.UNSAFE,
        (),
        lambda _: True,
        "A handshake that fails, as it does while layouts differ, ends the whole decode engine",
        "#41863",
        until=(0, 21),
    ),
    Rule(
        "hybrid_failed_transfer",
        RuleClass.UNSAFE,
        ("model_class",),
        lambda facts: facts.model_class == "hybrid",
        "A failed transfer of a model with several kinds of KV cache is answered with 200 and garbage",
        "#52234",
        since=(0, 18),
        until=(0, 29),
    ),
    Rule(
        "packed_hybrid",
        RuleClass.UNSAFE,
        ("model_class",),
        lambda facts: facts.model_class == "hybrid",
        "Packed blocks of a model with several kinds of KV cache end in an illegal memory access",
        "#47054",
        since=(0, 24),
        until=(0, 28),
    ),
    Rule(
        "per_token_head_corrupts",
        RuleClass.UNSAFE,
        (),
        is_per_token_head,
        "A KV cache quantised per token and head is corrupted",
        "#48412",
        until=(0, 26),
    ),
    Rule(
        "pipeline_parallel_asserts",
        RuleClass.UNSAFE,
        (),
        lambda facts: facts.pp > 1,
        "With pipeline parallelism a single region fails an assertion while the engine starts",
        "vLLM 0.26.0",
        since=(0, 26),
        until=(0, 30),
    ),
)

# What older releases would drop without a word. They are refused as a whole, until their mechanism is switched, too.
_BEFORE_LAYOUTS = (
    Rule(
        "v2_runner",
        RuleClass.INEFFECTIVE,
        ("runner",),
        lambda facts: facts.runner != "v1",
        "The V2 model runner ignores the preference; VLLM_USE_V2_MODEL_RUNNER=0 would be needed",
        "#45947",
        since=(0, 22),
        until=(0, 28),
    ),
    Rule(
        "mla_before_layouts",
        RuleClass.INEFFECTIVE,
        ("model_class",),
        is_latent,
        "MLA is excluded from cross-layer blocks, since its output was garbage",
        "#37032",
        until=(0, 28),
    ),
    Rule(
        "triton_before_support",
        RuleClass.INEFFECTIVE,
        ("backend",),
        lambda facts: facts.backend == "TRITON_ATTN",
        "The Triton backend takes part from 0.20",
        "#37940",
        until=(0, 19),
    ),
    Rule(
        "blackwell_without_trtllm",
        RuleClass.INEFFECTIVE,
        ("backend",),
        is_flashinfer_on_blackwell,
        "TRTLLM attention is switched off with any KV connector, so the arms could not be compared",
        "#33192",
        until=(0, 17),
    ),
)

_TOPOLOGY = (
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
        "#39500",
    ),
    Rule(
        "model_class",
        RuleClass.UNSUPPORTED,
        ("model_class",),
        lambda facts: facts.model_class not in MODEL_CLASSES,
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
        since=(0, 30),
    ),
    Rule(
        "mla_without_rows",
        RuleClass.INEFFECTIVE,
        ("model_class",),
        is_latent,
        "From 0.30 to 0.32 no layout registers whole rows for MLA",
        "vLLM 0.30.0",
        since=(0, 30),
        until=(0, 32),
    ),
    Rule(
        "per_token_head_dropped",
        RuleClass.INEFFECTIVE,
        (),
        is_per_token_head,
        "A KV cache quantised per token and head excludes the layout, so vLLM would drop the request for it",
        "#49226",
        since=(0, 27),
    ),
    Rule(
        "nvfp4_kv_cache",
        RuleClass.UNSUPPORTED,
        (),
        lambda facts: (facts.kv_cache_dtype or "").startswith("nvfp4"),
        "An NVFP4 KV cache answered with token 0 throughout after its blocks were packed",
        "#49011",
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
)

_BACKEND = (
    Rule(
        "backend",
        RuleClass.INEFFECTIVE,
        ("backend",),
        has_no_rows,
        "This attention backend does not support the layout, so vLLM would drop the request for it",
        "vllm-project/vllm-gaudi#1201",
    ),
    Rule(
        "flashinfer_on_blackwell",
        RuleClass.INEFFECTIVE,
        ("backend",),
        is_flashinfer_on_blackwell,
        "FlashInfer on Blackwell (or on a GPU that is not known) supports no layout with whole rows",
        "vLLM 0.29.0",
        since=(0, 29),
    ),
    Rule(
        "flashinfer_block_128",
        RuleClass.UNSUPPORTED,
        ("backend",),
        lambda facts: facts.backend == "FLASHINFER" and facts.block_size == 128 and facts.runner != "v1",
        "FlashInfer with blocks of 128 tokens and the V2 model runner fails NIXL's check of the block's shape",
        "#42846",
    ),
    Rule(
        "isolation",
        RuleClass.UNSUPPORTED,
        (),
        lambda facts: facts.isolation == Isolation.UNKNOWN,
        "It is not stated what keeps generations apart; set KVFLAGS_ISOLATION to recreate, bluegreen or router",
        "llm-d/llm-d#499",
    ),
)

_RELEASE = Rule(
    "release",
    RuleClass.UNSUPPORTED,
    ("vllm",),
    release_out_of_range,
    "This vLLM release is not between 0.29 and 0.33",
    "#51718",
)

RULES: tuple[Rule, ...] = (*_UNSAFE, _RELEASE, *_BEFORE_LAYOUTS, *_TOPOLOGY, *_BACKEND)
