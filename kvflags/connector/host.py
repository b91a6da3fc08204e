# SPDX-License-Identifier: Apache-2.0
"""What we touch of vLLM and NIXL, as types: what a new release can break stands here. Read in vLLM 0.32, NIXL 1.5."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

__all__ = [
    "Agent",
    "Connector",
    "FinishedRequest",
    "Handle",
    "IterationStats",
    "PrefixCacheStats",
    "Role",
    "SchedulerStats",
    "Telemetry",
    "Worker",
]

# NIXL's transfer handle: an object of its own, an int in old releases.
Handle = Hashable


class Telemetry(Protocol):
    """What NIXL measured for one handle, after neighbouring descriptors were merged. `postDuration` is in us."""

    totalBytes: int  # noqa: N815 (NIXL's names)
    descCount: int  # noqa: N815
    postDuration: float  # noqa: N815


class Agent(Protocol):
    """The NIXL agent, `connector_worker.nixl_wrapper`."""

    get_new_notifs: Callable[..., object]
    send_notif: Callable[..., object]

    def make_prepped_xfer(self, *args: object, notif_msg: bytes = b"", **kwargs: object) -> Handle: ...
    def transfer(self, handle: Handle, *args: object, **kwargs: object) -> str: ...
    def check_xfer_state(self, handle: Handle) -> str: ...
    def get_xfer_telemetry(self, handle: Handle) -> Telemetry: ...
    def release_xfer_handle(self, handle: Handle) -> object: ...


class Worker(Protocol):
    """`connector.connector_worker`. `block_len_per_layer` has one entry for each registered region."""

    nixl_wrapper: Agent
    nixl_backends: Sequence[str]
    backend_name: str
    block_size: int
    block_len_per_layer: Sequence[int]
    kv_cache_layout: str
    _log_failure: Callable[..., object]
    _recving_metadata: Mapping[str, object]
    _remote_agents: Mapping[str, object]


class Role(Protocol):
    """`KVConnectorRole`: `WORKER` or `SCHEDULER`."""

    name: str


class Connector(Protocol):
    """An instance of the wrapped class."""

    connector_worker: Worker


class PrefixCacheStats(Protocol):
    """In tokens, since the last iteration."""

    queries: int
    hits: int


class SchedulerStats(Protocol):
    """One iteration of an engine core; `kv_cache_usage` is a share."""

    kv_cache_usage: float
    prefix_cache_stats: PrefixCacheStats


class FinishedRequest(Protocol):
    """`str(finish_reason)` is its word: `stop`, `length`, `abort`, `error`, `repetition`."""

    finish_reason: object


class IterationStats(Protocol):
    """What one iteration brought the front end. Times are in seconds, a value for each request."""

    time_to_first_tokens_iter: Sequence[float]
    inter_token_latencies_iter: Sequence[float]
    num_prompt_tokens: int
    num_generation_tokens: int
    num_preempted_reqs: int
    finished_requests: Sequence[FinishedRequest]
