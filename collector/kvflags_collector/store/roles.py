# SPDX-License-Identifier: Apache-2.0
"""Roles that one collector at a time has, however many share a database: leases with fencing numbers.

Whoever has a role has a `Term` of it, with a number that grows by each change of hands. It writes through the term: the
number is checked in the same transaction as what is written, so a holder that stalled, and wakes when another has taken
over, writes nothing. Clocks that differ between collectors can make a role change hands early, and no more than that.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Connection, select, text, update

from kvflags.errors import KvflagsError
from kvflags_collector.store.control_tables import leases
from kvflags_collector.store.database import Database
from kvflags_collector.times import SECOND

__all__ = ["LEASE_US", "Role", "Superseded", "Term", "holder_name", "release", "take"]

# A collector that is killed leaves its roles to another after so long. Holders renew each third of it, so two
# renewals may fail before a living one loses a role.
LEASE_US = 15 * SECOND

# One statement, so that of two who take at once exactly one has it. The holder's own name takes at once: a process that
# starts anew on a database that only it may open need not wait for itself.
_TAKE = text(
    "INSERT INTO leases (role, holder, fence, expires_us) VALUES (:role, :holder, 1, :until)"
    " ON CONFLICT (role) DO UPDATE"
    " SET holder = excluded.holder, fence = leases.fence + 1, expires_us = excluded.expires_us"
    " WHERE leases.expires_us <= :now OR leases.holder = excluded.holder"
    " RETURNING fence"
)


class Role(StrEnum):
    """roller: rolls spans up. judge: freezes events and judges. ramper: keeps the ledger. maintainer: retention.
    messenger: the webhook."""

    ROLLER = "roller"
    JUDGE = "judge"
    RAMPER = "ramper"
    MAINTAINER = "maintainer"
    MESSENGER = "messenger"


# The others write telemetry only, and must not hold up a registration.
_KEEP_THE_LEDGER = frozenset({Role.JUDGE, Role.RAMPER})


class Superseded(KvflagsError):
    """Another collector has the role by now: nothing was written."""


@dataclass(frozen=True, slots=True)
class Term:
    """One holder's time in a role, from `take`. `clock` gives microseconds, UTC."""

    db: Database
    role: Role
    holder: str
    fence: int
    clock: Callable[[], int]

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A write transaction that only the holder gets, and which renews the lease.

        Superseded: the role changed hands. It is raised before anything is written, and cannot change hands afterwards:
        the row of the lease stays locked until the commit.
        """
        with self.db.write() if self.role in _KEEP_THE_LEDGER else self.db.append() as conn:
            mine = (leases.c.role == self.role, leases.c.fence == self.fence)
            renewed = conn.execute(update(leases).where(*mine).values(expires_us=self.clock() + LEASE_US))
            if not renewed.rowcount:
                raise Superseded(f"another collector is {self.role} by now")
            yield conn


def holder_name(db: Database) -> str:
    """What this process calls itself as a holder: no other has the name, unless only one may open the database."""
    if db.engine.dialect.name == "sqlite":
        return "the only collector"
    return f"{socket.gethostname()[:64]}:{os.getpid()}:{secrets.token_hex(4)}"


def take(db: Database, role: Role, holder: str, clock: Callable[[], int]) -> Term | None:
    """The role, where nobody else has it; None where somebody does. Blocks."""
    now = clock()
    # Most ask in vain, each second: reading keeps them off the lock that all writers want.
    with db.read() as conn:
        held = conn.execute(select(leases.c.holder, leases.c.expires_us).where(leases.c.role == role)).first()
    if held and held.expires_us > now and held.holder != holder:
        return None
    with db.append() as conn:
        asked = {"role": role.value, "holder": holder, "until": now + LEASE_US, "now": now}
        fence = conn.execute(_TAKE, asked).scalar()
    return None if fence is None else Term(db, role, holder, fence, clock)


def release(term: Term) -> None:
    """Leave the role to whoever asks next; nothing happens where another has it already."""
    with term.db.append() as conn:
        mine = (leases.c.role == term.role, leases.c.fence == term.fence)
        conn.execute(update(leases).where(*mine).values(expires_us=0))
