# SPDX-License-Identifier: Apache-2.0
"""The stratum of a deployment's generation: what must be alike for two to be compared without apology."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import Connection, select

from kvflags.flags import Facts
from kvflags_collector.store.control_tables import engines

__all__ = ["UNKNOWN", "Strata", "read"]

UNKNOWN = "unknown"
# (deployment, generation) -> stratum
Strata = Mapping[tuple[str, str], str]


def read(conn: Connection) -> Strata:
    """Of every generation whose engines were heard; engines that differ among themselves are named together."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    query = select(engines.c.deployment, engines.c.generation, engines.c.facts)
    for deployment, generation, facts in conn.execute(query):
        if deployment is not None:
            found[deployment, generation].add(_stratum(Facts.from_json(facts)))
    return {place: " and ".join(sorted(names)) for place, names in found.items()}


def _stratum(facts: Facts) -> str:
    """`FLASH_ATTN, H100, gqa, vLLM 0.32, 4 heads, block 16, rdma`; what is not known is left out."""
    minor = ".".join(facts.vllm.split(".")[:2]) if facts.vllm else None
    parts = (
        facts.backend,
        facts.gpu,
        facts.model_class,
        minor and f"vLLM {minor}",
        facts.kv_heads_per_rank and f"{facts.kv_heads_per_rank} heads",
        facts.block_size and f"block {facts.block_size}",
        facts.transport,
    )
    return ", ".join(str(part) for part in parts if part) or UNKNOWN
