# SPDX-License-Identifier: Apache-2.0
"""What the rules of the gate ask of the facts, where that takes more than a line, and the names they know."""

from __future__ import annotations

from kvflags.flags import Facts, minor

__all__ = [
    "BACKENDS",
    "MODEL_CLASSES",
    "ROW_BACKENDS",
    "has_no_rows",
    "is_flashinfer_on_blackwell",
    "is_latent",
    "is_per_token_head",
    "release_out_of_range",
]

# `mla_sparse` has a rule of its own.
MODEL_CLASSES = frozenset({"gqa", "mla", "mla_sparse"})

# Backends that declare no layouts of their own, which means any (0.32), and FlashInfer. Not FLASHINFER_MLA: with
# an fp8 cache it is reported to corrupt transfers (#52627).
ROW_BACKENDS = frozenset(
    {"CUTLASS_MLA", "FLASHINFER", "FLASHMLA", "FLASH_ATTN", "FLASH_ATTN_MLA", "TRITON_ATTN", "TRITON_MLA"}
)

# Every backend name an operator may use in a target; the rules say which of them can be treated.
BACKENDS = ROW_BACKENDS | {
    "CPU_ATTN",
    "FLASHINFER_MLA",
    "FLEX_ATTENTION",
    "ROCM_AITER_FA",
    "ROCM_AITER_UNIFIED_ATTN",
    "ROCM_ATTN",
}

# On SM100 FlashInfer supports LBHNC and BLHNC only, neither of which makes rows for GQA.
_BLACKWELL = ("B100", "B200", "B300", "GB200", "GB300")


def release_out_of_range(facts: Facts) -> bool:
    release = minor(facts.vllm)
    return release is None or not (0, 29) <= release <= (0, 33)


def has_no_rows(facts: Facts) -> bool:
    # The CPU's kernels follow the strides, but only a plugin of the demo and the tests declares the layout there.
    return not (facts.backend in ROW_BACKENDS or (facts.backend == "CPU_ATTN" and facts.lab))


def is_flashinfer_on_blackwell(facts: Facts) -> bool:
    return facts.backend == "FLASHINFER" and (facts.gpu is None or any(name in facts.gpu for name in _BLACKWELL))


def is_latent(facts: Facts) -> bool:
    return facts.model_class == "mla"


def is_per_token_head(facts: Facts) -> bool:
    return "per_token_head" in (facts.kv_cache_dtype or "")
