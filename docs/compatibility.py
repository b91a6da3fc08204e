# SPDX-License-Identifier: Apache-2.0
"""The compatibility matrix: what the gate says of each vLLM release, and how our wrapper is tested on it.

The releases are those of tests/contract, the answers are those of the gate's own table, and the release that runs for
real is the one that requirements/engine.lock installs.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import kvflags
from kvflags.features import CROSS_LAYER_BLOCKS
from kvflags.flags import Facts, Isolation, minor, refusals

__all__ = ["COLUMNS", "MODELS", "rows"]

# Of the code, wherever this script lies: the tests run a copy of it.
CHECKOUT = Path(kvflags.__file__).parents[1]

# An engine that nothing but its release can keep from taking part, and the kinds of model that are told apart.
_ENGINE = Facts(
    nixl="1.5.1",
    architecture="any",
    backend="FLASH_ATTN",
    block_size=16,
    kv_heads_per_rank=8,
    kv_cache_dtype="auto",
    connector="NixlConnector",
    gpu="NVIDIA H200",
    runner="v1",
    isolation=Isolation.RECREATE,
)
MODELS = {
    "GQA": replace(_ENGINE, model_class="gqa"),
    "GQA, one KV head on each rank": replace(_ENGINE, model_class="gqa", kv_heads_per_rank=1),
    "MLA": replace(_ENGINE, model_class="mla", backend="FLASHMLA", kv_heads_per_rank=1),
}
COLUMNS = ("vLLM", "mechanism", "connectors wrapped", *MODELS, "tested by")


def rows() -> Iterator[tuple[str, ...]]:
    """For each release that the contract tests know, oldest first: COLUMNS."""
    contract = _contract()
    for release, wheels in sorted(contract.RELEASES.items(), key=lambda item: minor(item[0]) or (0, 0)):
        version = wheels[0].partition("==")[2]
        answers = (_answer(replace(facts, vllm=version)) for facts in MODELS.values())
        connectors = ", ".join(f"`{name}`" for name in sorted(contract.connectors(release)))
        yield version, _mechanism(contract, release), connectors, *answers, _tests(contract, release)


def _answer(facts: Facts) -> str:
    refused = refusals(CROSS_LAYER_BLOCKS.rules, facts)
    if not refused:
        return f"switched, `{CROSS_LAYER_BLOCKS.layout(facts)}`"
    return f"observed: {', '.join(f'`{one.code}`' for one in refused)}"


def _mechanism(contract: ModuleType, release: str) -> str:
    layouts = (minor(release) or (0, 0)) >= contract.LAYOUTS
    return "`get_required_kvcache_layout`" if layouts else "`prefer_cross_layer_blocks`"


def _tests(contract: ModuleType, release: str) -> str:
    often = "contract" if release in contract.EACH_RUN else "contract (`make soak`)"
    return f"engines for real; {often}" if minor(release) == minor(_installed()) else often


def _installed() -> str:
    lock = (CHECKOUT / "requirements" / "engine.lock").read_text()
    return re.findall(r"^vllm(?:-cpu)?==(\S+)", lock, re.MULTILINE)[0]


def _contract() -> ModuleType:
    """tests/contract/releases.py, which is no package that could be imported by name."""
    path = CHECKOUT / "tests" / "contract" / "releases.py"
    spec = importlib.util.spec_from_file_location("releases", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
