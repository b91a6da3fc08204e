# SPDX-License-Identifier: Apache-2.0
"""Sees every transfer of a worker begin and end, and appends one tuple for each.

Runs on the engine's threads: the step loop, the push writer, handshake callbacks. So it takes none of the worker's
locks and does no I/O; an idle step costs nothing, a step 0.3 us for each transfer under way, a transfer 13 us
(benchmarks/engine/hot_path.py).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kvflags.connector.guard import guarded
from kvflags.telemetry.failures import FailureKind
from kvflags.telemetry.records import Records, Transfer

if TYPE_CHECKING:
    from kvflags.connector.host import Handle, Telemetry

__all__ = ["Observer"]

# Requests that have ended are remembered this long, because vLLM can report one failure several times (a handle that it
# cannot release is polled, and fails, in every step). 8,192 ids are under 2 MB, and 80 s at 100 transfers a second.
_REMEMBERED = 8_192

# The transfer itself goes on: these make its one span an error, and do not end it.
_GOES_ON = frozenset({FailureKind.NOTIFICATION_FAILED})
_KINDS = {kind.value: kind for kind in FailureKind}


class _Live:
    """One request between the first sight of it and its end."""

    __slots__ = (
        "blocks", "bytes", "descriptors", "done", "end", "failure", "post_us", "posted", "remote_engine",
        "remote_request", "request", "start", "start_ns",
    )  # fmt: skip

    def __init__(self, request: str, meta: object) -> None:
        self.request = request
        remote = getattr(meta, "remote", None)
        self.remote_engine = str(getattr(remote, "engine_id", ""))
        self.remote_request = str(getattr(remote, "request_id", ""))
        self.blocks = _blocks(meta)
        self.posted = self.done = 0
        self.bytes = self.descriptors = 0
        self.post_us = 0.0
        self.failure = ""
        # The wall clock says when, the monotonic one how long: a step of the former must not make a duration.
        self.start_ns = time.time_ns()
        self.start = self.end = time.monotonic_ns()

    def record(self, kind: str, detail: str, *, mismatch: bool) -> Transfer:
        end_ns = self.start_ns + max(0, self.end - self.start)
        post_ns = round(self.post_us * 1000)
        who = (self.request, self.remote_engine, self.remote_request)
        what = (self.bytes, self.descriptors, post_ns)
        return Transfer(*who, self.blocks, self.start_ns, end_ns, *what, str(kind), detail, mismatch)


class Observer:
    """The accounts of one worker: every request ends in exactly one record, whichever thread ends it first.

    declined: whether vLLM gave a request up without naming a failure. waiting: whether the engine at the other end
    still has to be greeted. Both are asked about requests that have posted nothing.
    """

    def __init__(
        self,
        records: Records,
        *,
        declined: Callable[[str], bool] = lambda _: False,
        waiting: Callable[[str], bool] = lambda _: False,
        mismatches: Iterable[str] = (),
    ) -> None:
        self._records = records
        self._declined = declined
        self._waiting = waiting
        self._mismatches = tuple(mismatches)
        self._live: dict[str, _Live] = {}
        self._handles: dict[Handle, _Live] = {}
        self._ended: dict[str, object] = {}
        self._order: deque[str] = deque()
        self._current = threading.local()
        self._lock = threading.Lock()
        self.ok = 0
        self.errors = 0

    # A request is being read or written: the handles that this thread posts until `leave` are its own.

    @guarded(None)
    def enter(self, request: str, meta: object) -> None:
        """Called before vLLM posts a request's transfers, and again where it had to wait for a handshake."""
        live = self._live.get(request)
        if live is None:
            live = _Live(request, meta)
            if not live.blocks:
                return  # all blocks are here already: the other end is told, nothing is moved
            self._ended.pop(request, None)
            self._live[request] = live
        self._current.live = live

    @guarded(None)
    def leave(self) -> None:
        """Called after it. A request that has posted nothing, and waits for nothing, has no transfer."""
        live: _Live | None = self._current.__dict__.pop("live", None)
        if live is None or live.posted or self._live.get(live.request) is not live:
            return
        if self._declined(live.request):
            self._end(live, FailureKind.OTHER, "declined")
        elif not self._waiting(live.remote_engine):
            self._live.pop(live.request, None)

    # What happens to a handle, in this order.

    @guarded(None)
    def prepared(self, handle: Handle, notification: bytes) -> None:
        self._handles[handle] = getattr(self._current, "live", None) or self._stranger(notification)

    @guarded(None)
    def posted(self, handle: Handle, started_ns: int, started: int) -> None:
        live = self._handles.get(handle)
        if live is None:
            return
        if not live.posted:
            live.start_ns, live.start = started_ns, started
        live.posted += 1

    def _stranger(self, notification: bytes) -> _Live:
        # A release that posts elsewhere: the notification still names the request, as the other end knows it.
        name = notification.rpartition(b":")[0].decode(errors="replace")
        live = self._live.get(name)
        if live is None:
            live = self._live[name] = _Live(name, None)
            live.remote_request = name
        return live

    @guarded(None)
    def done(self, handle: Handle) -> None:
        live = self._handles.get(handle)
        if live is not None:
            live.done += 1
            live.end = time.monotonic_ns()

    @guarded(None)
    def measured(self, handle: Handle, telemetry: Telemetry | None) -> None:
        live = self._handles.get(handle)
        if live is not None and telemetry is not None:
            live.bytes += telemetry.totalBytes
            live.descriptors += telemetry.descCount
            live.post_us += telemetry.postDuration

    @guarded(None)
    def released(self, handle: Handle) -> None:
        """The end of a good transfer. A handle let go before it was done belongs to a failure or to a shutdown."""
        live = self._handles.pop(handle, None)
        if live is not None and live.posted and live.done == live.posted:
            self._end(live, live.failure)

    # What ends badly.

    @guarded(None)
    def failed(
        self, failure: str, request: str | None, error: BaseException | None = None, meta: object = None
    ) -> None:
        """vLLM names a failure. Without a request (a handshake that several wait for) it makes no record."""
        if request is None:
            return
        live = self._live.get(request)
        kind = _KINDS.get(failure, FailureKind.OTHER)
        if kind in _GOES_ON and live is not None:
            live.failure = live.failure or kind
            return
        live = live or _Live(request, meta)
        live.end = time.monotonic_ns()
        detail = failure if kind is FailureKind.OTHER else ""
        self._end(live, kind, detail, mismatch=any(text in str(error) for text in self._mismatches))

    @guarded(None)
    def close(self) -> None:
        """The engine stops: whatever is under way will not end."""
        for live in list(self._live.values()):
            live.end = time.monotonic_ns()
            self._end(live, FailureKind.SHUTDOWN)
        self._handles.clear()

    def _end(self, live: _Live, kind: str, detail: str = "", *, mismatch: bool = False) -> None:
        if not self._claim(live.request):
            return
        self._records.append(live.record(kind, detail, mismatch=mismatch))
        self._count(failed=bool(kind))

    def _claim(self, request: str) -> bool:
        """Whether this call is the one that ends it. `setdefault` is atomic, so of two threads one wins."""
        token = object()
        if self._ended.setdefault(request, token) is not token:
            return False
        self._live.pop(request, None)
        self._order.append(request)
        if len(self._order) > _REMEMBERED:
            self._ended.pop(self._order.popleft(), None)
        return True

    def _count(self, *, failed: bool) -> None:
        with self._lock:
            self.ok += not failed
            self.errors += failed


def _blocks(meta: object) -> int:
    """Blocks on this rank, in the kernel's size where vLLM has worked that out: those are what NIXL moves."""
    groups = getattr(meta, "local_physical_block_ids", None) or getattr(meta, "local_block_ids", None) or ()
    return sum(len(group) for group in groups)
