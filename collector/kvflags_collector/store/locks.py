# SPDX-License-Identifier: Apache-2.0
"""Who writes beside whom, when several collectors share a PostgreSQL. SQLite has one writer, so nothing to do there.

Why advisory locks, and not row locks or serializable transactions: a decision of the ledger reads much more than it
writes (flags, live registrations, the observation, assignments), and often that a row is absent, which no row lock
covers. Serializable transactions would notice, but must be retried whole, also fail each other over pages read by
chance, and so are slowest when a fleet restarts: a thousand engines register within seconds, each waiting 2 s at most.
With locks nobody is retried. The fleet's lock is taken shared by what concerns one deployment, and alone by what
changes a flag or judges every lease; then the deployment's own. So registrations of different deployments never meet.
Always in this order, so there is no cycle; and they end with the transaction, however it ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from sqlalchemy import Connection

__all__ = ["alone", "for_deployment", "for_ranks", "once", "patiently"]

# First halves of the keys; the letters "kvf" keep them apart from those of others in the same database.
_FLEET, _DEPLOYMENT, _ONCE, _RANKS = (0x6B766600 + number for number in range(4))
# A request may name thousands of deployments, and a server has some 6,000 locks for all of its sessions.
_SHARES = 64


def patiently(conn: Connection, wait_s: float) -> None:
    """From here on no lock is waited for longer than `wait_s`; OperationalError then."""
    if conn.dialect.name == "postgresql":
        # 0 would be for ever.
        conn.exec_driver_sql(f"SET LOCAL lock_timeout = {max(1, round(wait_s * 1000))}")


def alone(conn: Connection) -> None:
    """Nobody else writes to the ledger until this transaction ends."""
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_FLEET}, 0)")


def for_deployment(conn: Connection, deployment: str) -> None:
    """Nobody else writes to the ledger about this deployment, nor about the fleet, until this transaction ends."""
    if conn.dialect.name == "postgresql":
        # Two selects: one would leave the order of its two locks to the planner.
        conn.exec_driver_sql(
            f"SELECT pg_advisory_xact_lock_shared({_FLEET}, 0);"
            f" SELECT pg_advisory_xact_lock({_DEPLOYMENT}, {_number(deployment)})"
        )


def for_ranks(conn: Connection, deployments: Iterable[str]) -> None:
    """From here to the end of this transaction, nobody else looks where the other ranks of their transfers are.

    Two that each store a rank would both miss the other's, which is not committed yet. Taken after the spans are in and
    before their minutes are marked: it lies between locks that are taken in order too, and no cycle closes.
    """
    if conn.dialect.name == "postgresql":
        shares = sorted({_number(deployment) % _SHARES for deployment in deployments})
        conn.exec_driver_sql("; ".join(f"SELECT pg_advisory_xact_lock({_RANKS}, {share})" for share in shares))


def once(conn: Connection, what: str) -> None:
    """For what exists once and is made by whoever needs it first: look, take this, look again, make it."""
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ONCE}, {_number(what)})")


def _number(name: str) -> int:
    """32 bits, signed. Two names that share one wait for each other now and then, no more."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "big", signed=True)
