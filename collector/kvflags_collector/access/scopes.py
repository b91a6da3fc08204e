# SPDX-License-Identifier: Apache-2.0
"""The scopes of tokens, and which covers which."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Scope", "covers"]


class Scope(StrEnum):
    """ingest: engines send and register. read: pages, reports, lists. operate: changes too. admin: everything.

    An engine's token cannot read: it lies on every host of the fleet.
    """

    INGEST = "ingest"
    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"


_COVERED = {
    Scope.INGEST: frozenset({Scope.INGEST}),
    Scope.READ: frozenset({Scope.READ}),
    Scope.OPERATE: frozenset({Scope.READ, Scope.OPERATE}),
    Scope.ADMIN: frozenset(Scope),
}


def covers(held: Scope, needed: Scope) -> bool:
    """Whether a token of scope `held` may do what needs `needed`."""
    return needed in _COVERED[held]
