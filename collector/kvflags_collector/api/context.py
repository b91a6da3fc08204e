# SPDX-License-Identifier: Apache-2.0
"""What handlers ask for: the database, the clock, the leases' timing, and when a request came in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from kvflags_collector.access.keyring import Keyring
from kvflags_collector.rollout.leases import Timing
from kvflags_collector.store.database import Database
from kvflags_collector.times import now_us

__all__ = ["Ctx", "Keys", "Received", "State"]


@dataclass(frozen=True, slots=True)
class State:
    """Set once, as `app.state.kvflags`. `clock` gives microseconds, UTC; `alive`: whether our threads all run.

    hub: whether bundles of other fleets are taken.
    """

    db: Database
    timing: Timing = field(default_factory=Timing)
    clock: Callable[[], int] = now_us
    alive: Callable[[], bool] = lambda: True
    hub: bool = False


async def _state(request: Request) -> State:
    state: State = request.app.state.kvflags
    return state


async def _keyring(request: Request) -> Keyring:
    keyring: Keyring = request.app.state.keyring
    return keyring


async def _received() -> float:
    # Runs on the event loop when the body was read, so that waiting for a thread counts as time taken.
    return time.monotonic()


Ctx = Annotated[State, Depends(_state)]
Keys = Annotated[Keyring, Depends(_keyring)]
Received = Annotated[float, Depends(_received)]
