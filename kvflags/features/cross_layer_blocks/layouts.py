# SPDX-License-Identifier: Apache-2.0
"""Which KV-cache layout makes whole rows, where vLLM resolves one `KVCacheLayout` per model (0.29 to 0.33)."""

from __future__ import annotations

from kvflags.flags import Facts, minor

__all__ = ["WAY_BACK", "layout"]

# Blocks first, then heads, layers, tokens: the page of one block is contiguous over all layers.
_ROWS = "BHLNC"
WAY_BACK = (
    "Without kvflags, vLLM 0.29 to 0.33: VLLM_KV_CACHE_LAYOUT=LBHNC (NIXL's own default) on prefill and decode, restart"
    " both.",
    "Before 0.29: enable_cross_layers_blocks False in kv_connector_extra_config on both, which is the default.",
)


def layout(facts: Facts) -> str | None:
    """The layout to ask for, or None where no layout registers whole rows.

    Read from the region logic of each release: with several KV heads a rank BHLNC gives rows in all of them; with a
    single head 0.30 and later take the page branch and register strided pages, which cannot merge and are worse than
    the default (8 layers, 5 blocks: 40 descriptors against 8). MLA has rows in 0.29 and again in 0.33.
    """
    release = minor(facts.vllm)
    if release is None or not (0, 29) <= release <= (0, 33):
        return None
    if facts.model_class == "mla":
        return _ROWS if release in {(0, 29), (0, 33)} else None
    if facts.model_class != "gqa" or facts.kv_heads_per_rank is None:
        return None
    return _ROWS if facts.kv_heads_per_rank > 1 or release == (0, 29) else None
