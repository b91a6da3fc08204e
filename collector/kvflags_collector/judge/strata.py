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
            found[deployment, generation].add(Facts.from_json(facts).stratum or UNKNOWN)
    return {place: " and ".join(sorted(names)) for place, names in found.items()}
