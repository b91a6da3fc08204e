# SPDX-License-Identifier: Apache-2.0
"""What operators state of a deployment: what keeps its generations apart, how many engines it has, its labels, and
facts to go by before anything was observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, select

from kvflags.flags import Facts, Isolation, Role
from kvflags_collector.store.control_tables import declarations

__all__ = ["NOTHING", "Declaration", "everywhere", "of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One deployment's. `prefill` and `decode`: how many engines it has when it is complete.

    `backend` (with `block_size`, in tokens) is what its engines will choose. Stating it waives the wait for
    observation, and takes the deployment out of the comparison, since it has no baseline; the rest does neither.
    """

    isolation: str | None = None
    prefill: int = 1
    decode: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    backend: str | None = None
    block_size: int | None = None

    @property
    def waives(self) -> bool:
        return self.backend is not None

    @property
    def engines(self) -> dict[str, int]:
        """How many of each role must live for the deployment to be complete."""
        return {Role.PREFILL: self.prefill, Role.DECODE: self.decode}

    def over(self, facts: Facts) -> Facts:
        """An engine's facts with what it does not know itself. Two statements that differ are as good as none."""
        isolation = facts.isolation
        if self.isolation is not None:
            agreed = isolation in {Isolation.UNKNOWN, self.isolation}
            isolation = self.isolation if agreed else Isolation.UNKNOWN
        return replace(
            facts,
            isolation=isolation,
            backend=facts.backend or self.backend,
            block_size=facts.block_size or self.block_size,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


NOTHING = Declaration()


def of(conn: Connection, deployment: str) -> Declaration:
    """What is stated of this deployment."""
    document = conn.scalar(select(declarations.c.document).where(declarations.c.deployment == deployment))
    return Declaration(**document) if document else NOTHING


def everywhere(conn: Connection) -> dict[str, Declaration]:
    """What is stated, by deployment."""
    stated = conn.execute(select(declarations.c.deployment, declarations.c.document))
    return {name: Declaration(**document) for name, document in stated}
