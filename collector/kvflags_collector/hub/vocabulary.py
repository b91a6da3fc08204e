# SPDX-License-Identifier: Apache-2.0
"""Every word that a bundle may hold about what was measured on. Whatever an engine says that is not here never leaves.

Engines say what they like of themselves: a model class or a GPU's name may hold the name of whoever runs it.
"""

from __future__ import annotations

import re

from kvflags.features import CROSS_LAYER_BLOCKS
from kvflags.features.cross_layer_blocks.predicates import MODEL_CLASSES

__all__ = [
    "ARCHITECTURES",
    "BACKENDS",
    "GPUS",
    "MODEL_CLASSES",
    "OTHER",
    "TRANSPORTS",
    "Stratum",
    "architecture",
    "stratum",
]

BACKENDS = CROSS_LAYER_BLOCKS.backends

GPUS = frozenset(
    [
        "A10",
        "A100",
        "A30",
        "A40",
        "B100",
        "B200",
        "B300",
        "GB200",
        "GB300",
        "GH200",
        "H100",
        "H20",
        "H200",
        "H800",
        "L4",
        "L40",
        "L40S",
        "MI210",
        "MI250",
        "MI250X",
        "MI300A",
        "MI300X",
        "MI308X",
        "MI325X",
        "MI350X",
        "MI355X",
        "RTX6000",
        "T4",
        "V100",
    ]
)

# NIXL's backends, and what operators call the wire beneath.
TRANSPORTS = frozenset(
    [
        "UCX",
        "GDS",
        "GDS_MT",
        "LIBFABRIC",
        "MOONCAKE",
        "POSIX",
        "HF3FS",
        "OBJ",
        "UCCL",
        "rdma",
        "tcp",
        "shm",
        "cuda_ipc",
        "nvlink",
        "efa",
        "infiniband",
        "roce",
    ]
)

# The public architectures that most fleets serve; any other is "other".
ARCHITECTURES = frozenset(
    [
        "CohereForCausalLM",
        "Cohere2ForCausalLM",
        "DbrxForCausalLM",
        "DeepseekForCausalLM",
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "Ernie4_5ForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "FalconForCausalLM",
        "GemmaForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "Glm4ForCausalLM",
        "Glm4MoeForCausalLM",
        "GptOssForCausalLM",
        "GraniteForCausalLM",
        "GraniteMoeForCausalLM",
        "InternLM2ForCausalLM",
        "InternLM3ForCausalLM",
        "KimiK2ForCausalLM",
        "LlamaForCausalLM",
        "Llama4ForCausalLM",
        "Llama4ForConditionalGeneration",
        "MiniMaxM2ForCausalLM",
        "MistralForCausalLM",
        "Mistral3ForConditionalGeneration",
        "MixtralForCausalLM",
        "NemotronForCausalLM",
        "OlmoForCausalLM",
        "Olmo2ForCausalLM",
        "OPTForCausalLM",
        "PhiForCausalLM",
        "Phi3ForCausalLM",
        "Phi4MMForCausalLM",
        "PhiMoEForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3VLForConditionalGeneration",
        "Starcoder2ForCausalLM",
    ]
)
OTHER = "other"

Stratum = dict[str, str | int]

_WORDS = re.compile(r"[A-Za-z0-9]+")
_NUMBERS = (
    ("vllm", re.compile(r"vLLM ([0-9]{1,2}\.[0-9]{1,3})"), str),
    ("kv_heads_per_rank", re.compile(r"([1-9][0-9]{0,3}) heads"), int),
    ("block_size", re.compile(r"block ([1-9][0-9]{0,4})"), int),
)


def architecture(name: str | None) -> str:
    """The architecture, where it is a public one; else `other`."""
    return name if name in ARCHITECTURES else OTHER


def stratum(name: str) -> Stratum | None:
    """A stratum's name as `judge.strata` makes it, taken apart; None unless every part of it is a word that we have."""
    found: Stratum = {}
    for part in name.split(", "):
        known = _part(part)
        if known is None or known[0] in found:
            return None
        found[known[0]] = known[1]
    return found or None


def _part(text: str) -> tuple[str, str | int] | None:
    for field, words in (("backend", BACKENDS), ("model_class", MODEL_CLASSES)):
        if text in words:
            return field, text
    for field, pattern, kind in _NUMBERS:
        if match := pattern.fullmatch(text):
            return field, kind(match[1])
    if text and all(one in TRANSPORTS for one in text.split("+")):
        return "transport", text
    gpus = [word for word in _WORDS.findall(text) if word in GPUS]
    return ("gpu", gpus[0]) if len(gpus) == 1 else None
