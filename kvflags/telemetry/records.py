# SPDX-License-Identifier: Apache-2.0
"""What the engine's threads leave behind: one tuple per transfer, in a bounded queue that counts what it has to refuse.

Appending is all that happens on those threads (0.2 us); everything else is the export thread's work.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

__all__ = ["CAPACITY", "Records", "Transfer"]

# The buffer of an outage of the collector: a record is about 0.6 kB where the span built from it is 4 kB, so records
# wait and spans do not. 32,768 hold 5 minutes at 100 transfers a second, for at most 20 MB in each worker.
CAPACITY = 32_768


class Transfer(NamedTuple):
    """One request's KV as one rank saw it, ended well (`kind` is empty) or badly (`kind` is a `FailureKind`).

    Times are in ns since the epoch, `post_ns` is a duration. `blocks` counts the kernel's blocks, which is what NIXL
    moves. `detail` is vLLM's own name of a failure that is not a known kind.
    """

    request: str
    remote_engine: str
    remote_request: str
    blocks: int
    start_ns: int
    end_ns: int
    bytes: int = 0
    descriptors: int = 0
    post_ns: int = 0
    kind: str = ""
    detail: str = ""
    layout_mismatch: bool = False


class Records:
    """A queue of transfers. Any thread appends, one takes; neither waits for the other."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        # Not deque(maxlen), which drops the oldest without telling. Appends that race exceed the bound by one each.
        self._queue: deque[Transfer] = deque()
        self._lock = threading.Lock()
        self._dropped = 0

    def append(self, transfer: Transfer) -> None:
        """Keep it, or count it as dropped where the queue is full. Never waits for the export thread."""
        if len(self._queue) < self._capacity:
            self._queue.append(transfer)
            return
        with self._lock:
            self._dropped += 1

    def take(self, most: int) -> list[Transfer]:
        """The oldest transfers, at most that many. One thread only."""
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def dropped(self) -> int:
        """How many found the queue full, since the start."""
        return self._dropped
