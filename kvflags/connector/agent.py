# SPDX-License-Identifier: Apache-2.0
"""Stands where vLLM calls NIXL, and tells the observer. Every call and every exception passes through unchanged."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kvflags.connector.guard import guarded
from kvflags.connector.observe import Observer

if TYPE_CHECKING:
    from kvflags.connector.host import Agent, Handle, Telemetry

__all__ = ["AgentProxy", "funnel", "marked"]


class AgentProxy:
    """A NIXL agent as vLLM uses it.

    The calls that are watched, and those that are made in every step, are methods or attributes of their own: a look-up
    through `__getattr__` costs 0.6 us, and `check_xfer_state` comes for each transfer under way in each step.
    """

    def __init__(self, agent: Agent, observer: Observer) -> None:
        self._agent = agent
        self._observer = observer
        self._check = agent.check_xfer_state
        self.get_new_notifs = agent.get_new_notifs
        self.send_notif = agent.send_notif

    def __getattr__(self, name: str) -> object:
        return getattr(self._agent, name)

    def make_prepped_xfer(self, *args: object, notif_msg: bytes = b"", **kwargs: object) -> Handle:
        handle = self._agent.make_prepped_xfer(*args, notif_msg=notif_msg, **kwargs)
        self._observer.prepared(handle, notif_msg)
        return handle

    def transfer(self, handle: Handle, *args: object, **kwargs: object) -> str:
        wall, monotonic = time.time_ns(), time.monotonic_ns()
        state = self._agent.transfer(handle, *args, **kwargs)
        self._observer.posted(handle, wall, monotonic)
        return state

    def check_xfer_state(self, handle: Handle) -> str:
        state = self._check(handle)
        if state == "DONE":
            self._observer.done(handle)
        return state

    def get_xfer_telemetry(self, handle: Handle) -> Telemetry:
        telemetry = self._agent.get_xfer_telemetry(handle)
        self._observer.measured(handle, telemetry)
        return telemetry

    def release_xfer_handle(self, handle: Handle) -> object:
        result = self._agent.release_xfer_handle(handle)
        self._observer.released(handle)
        return result


def marked(inner: Callable[..., object], observer: Observer) -> Callable[..., object]:
    """vLLM's method that posts one request's transfers, `inner(req_id, meta)`, between `enter` and `leave`."""

    def mark(req_id: str, meta: object, *args: object, **kwargs: object) -> object:
        observer.enter(req_id, meta)
        try:
            return inner(req_id, meta, *args, **kwargs)
        finally:
            observer.leave()

    return mark


def funnel(inner: Callable[..., object], observer: Observer, waiting: Mapping[str, object]) -> Callable[..., object]:
    """vLLM's `_log_failure`, through which every failure of every release goes. `waiting`: its metadata by request."""

    def log_failure(failure_type: str, req_id: str | None, *args: object, **kwargs: object) -> object:
        _tell(observer, failure_type, req_id, kwargs, waiting)
        return inner(failure_type, req_id, *args, **kwargs)

    return log_failure


@guarded(None)
def _tell(
    observer: Observer,
    failure: str,
    request: str | None,
    told: Mapping[str, object],
    waiting: Mapping[str, object],
) -> None:
    meta, error = told.get("meta") or waiting.get(request or ""), told.get("error")
    observer.failed(failure, request, error if isinstance(error, BaseException) else None, meta)
