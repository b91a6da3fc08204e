# SPDX-License-Identifier: Apache-2.0
"""A tiny Llama with seeded random weights, whose logits depend on what its KV cache holds.

vLLM's own dummy weights would not do: they give uniform logits whatever is in the cache, so corrupted transfers would
pass.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["VOCABULARY", "make_model"]

VOCABULARY = 1024

_SCRIPT = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
path, layers, kv_heads, vocabulary = sys.argv[1], *map(int, sys.argv[2:])
torch.manual_seed(0)
config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=layers, num_attention_heads=8,
                     num_key_value_heads=kv_heads, head_dim=32, vocab_size=vocabulary, max_position_embeddings=4096,
                     initializer_range=0.15, tie_word_embeddings=False)
model = LlamaForCausalLM(config)
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "lm_head" in name:
            parameter.normal_(0, 0.25)
        elif "embed" in name:
            parameter.normal_(0, 1.0)
model.to(torch.bfloat16).save_pretrained(path)
"""


def make_model(folder: Path, *, layers: int = 8, kv_heads: int = 4) -> Path:
    """Write the model (about 12 MB) unless it is there, and return its path. Takes seconds, in a process of its own."""
    path = folder / f"llama-{layers}-layers-{kv_heads}-kv-heads"
    if not (path / "config.json").exists():
        path.mkdir(parents=True, exist_ok=True)
        numbers = [str(number) for number in (layers, kv_heads, VOCABULARY)]
        subprocess.run([sys.executable, "-c", _SCRIPT, str(path), *numbers], check=True, capture_output=True)  # noqa: S603
    return path
