# SPDX-License-Identifier: Apache-2.0
"""A worker and an agent that behave as vLLM's 0.32 pull worker and NIXL do, where we watch them: small fakes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kvflags.connector.agent import AgentProxy, funnel, marked
from kvflags.connector.observe import Observer
from kvflags.decision import carry
from kvflags.decision.carry import Carried
from kvflags.flags import Decision
from kvflags.telemetry.records import Records


@pytest.fixture(autouse=True)
def _strict(monkeypatch):
    """What a guard catches in production fails the test here."""
    monkeypatch.setenv("KVFLAGS_STRICT", "1")


class FakeHandle:
    """NIXL's handles are compared by identity."""


class FakeAgent:
    """States are set by the test; `fail` names calls that raise."""

    def __init__(self) -> None:
        self.states: dict[FakeHandle, str] = {}
        self.fail: set[str] = set()
        self.released: list[FakeHandle] = []
        self.posted: list[FakeHandle] = []

    def _call(self, name: str) -> None:
        if name in self.fail:
            raise RuntimeError(f"nixl: {name}")

    def make_prepped_xfer(self, *args, notif_msg=b"", **kwargs):
        self._call("make_prepped_xfer")
        handle = FakeHandle()
        self.states[handle] = "PROC"
        return handle

    def transfer(self, handle, notif_msg=b""):
        self._call("transfer")
        self.posted.append(handle)
        return "PROC"

    def check_xfer_state(self, handle):
        self._call("check_xfer_state")
        return self.states[handle]

    def get_xfer_telemetry(self, handle):
        self._call("get_xfer_telemetry")
        return SimpleNamespace(totalBytes=100, descCount=3, postDuration=7.5, xferDuration=90.0, startTime=1)

    def release_xfer_handle(self, handle):
        self._call("release_xfer_handle")
        self.released.append(handle)

    def get_new_notifs(self):
        return {"agent": [b"HB:"]}

    def send_notif(self, agent_name, notif_msg=b""):
        self._call("send_notif")

    def get_agent_metadata(self):
        return b"metadata"


class FakePullWorker:
    """The parts of NixlPullConnectorWorker (0.32) that post, poll and fail."""

    _TRANSFER_MODE = "pull"
    backend_name, block_size, nixl_backends = "CPU_ATTN", 64, ["UCX"]
    _physical_blocks_per_logical_kv_block = 2
    kv_cache_layout = "BHLNC"

    def __init__(self, agent: FakeAgent, ranks: int = 1) -> None:
        self.nixl_wrapper = agent
        self.ranks = ranks
        self.block_len_per_layer = [4096]
        self._recving_metadata: dict[str, object] = {}
        self._recving_transfers: dict[str, list[object]] = {}
        self._remote_agents: dict[str, object] = {"engine-p": {}}
        self._recv_failures: set[str] = set()
        self.invalid: set[str] = set()
        self.logged: list[tuple[str, str | None]] = []

    def start_load_kv(self, requests) -> None:
        for request, meta in requests.items():
            self._recving_metadata[request] = meta
            self._read_blocks_for_req(request, meta)

    def _read_blocks_for_req(self, req_id, meta) -> None:
        if meta.remote.engine_id in self.invalid:
            self._handle_failed_transfer(req_id, None)
            return
        if meta.remote.engine_id not in self._remote_agents:
            return  # greeted in the background; called again, or failed, afterwards
        if not any(meta.local_block_ids):
            try:
                self.nixl_wrapper.send_notif("agent", notif_msg=b"x")
            except RuntimeError as error:
                self._log_failure(failure_type="notification_failed", req_id=req_id, error=error)
            return
        for _ in range(self.ranks):
            if not self._read_blocks(req_id, meta):
                return

    def _read_blocks(self, req_id, meta) -> bool:
        handle = None
        try:
            message = f"{meta.remote.request_id}:1".encode()
            handle = self.nixl_wrapper.make_prepped_xfer("READ", 1, [0], 2, [0], notif_msg=message)
            self.nixl_wrapper.transfer(handle)
            self._recving_transfers.setdefault(req_id, []).append(handle)
            return True
        except RuntimeError as error:
            self._log_failure(failure_type="transfer_setup_failed", req_id=req_id, error=error)
            if not self._handle_failed_transfer(req_id, handle):
                self._recving_transfers.setdefault(req_id, []).append(handle)
            return False

    def poll(self) -> None:
        for req_id, handles in list(self._recving_transfers.items()):
            kept = [handle for handle in handles if not self._poll(req_id, handle)]
            self._recving_transfers[req_id] = kept
            if not kept:
                del self._recving_transfers[req_id]
                self._recving_metadata.pop(req_id, None)

    def _poll(self, req_id, handle) -> bool:
        try:
            state = self.nixl_wrapper.check_xfer_state(handle)
            if state == "DONE":
                self.nixl_wrapper.get_xfer_telemetry(handle)
                self.nixl_wrapper.release_xfer_handle(handle)
                return True
            if state == "PROC":
                return False
            self._log_failure(failure_type="transfer_failed", req_id=req_id, xfer_state=state)
        except RuntimeError as error:
            self._log_failure(failure_type="transfer_exception", req_id=req_id, error=error)
        return self._handle_failed_transfer(req_id, handle)

    def _handle_failed_transfer(self, req_id, handle) -> bool:
        self._recv_failures.add(req_id)
        try:
            if handle is not None:
                self.nixl_wrapper.release_xfer_handle(handle)
        except RuntimeError as error:
            self._log_failure(failure_type="transfer_release_failed", req_id=req_id, error=error)
            return False
        return True

    def _log_failure(self, failure_type, req_id, msg="", error=None, meta=None, **context) -> None:
        self.logged.append((failure_type, req_id))

    def shutdown(self) -> None:
        for handles in self._recving_transfers.values():
            for handle in handles:
                self.nixl_wrapper.release_xfer_handle(handle)
        self._recving_transfers.clear()


def meta(blocks=5, remote="engine-p", request="req-p"):
    """What the scheduler sends to the worker for one request (vLLM's ReqMeta)."""
    ids = (list(range(blocks)),)
    where = SimpleNamespace(engine_id=remote, request_id=request, block_ids=ids)
    return SimpleNamespace(local_block_ids=ids, local_physical_block_ids=ids, remote=where)


class Watched:
    """A fake worker with everything of ours put in place, as Runtime does it."""

    def __init__(self, ranks: int = 1) -> None:
        self.agent = FakeAgent()
        self.worker = FakePullWorker(self.agent, ranks)
        self.records = Records()
        self.observer = Observer(
            self.records,
            declined=lambda request: request in self.worker._recv_failures,
            waiting=lambda engine: engine not in self.worker._remote_agents,
            mismatches=("expects same kv_cache_layout",),
        )
        worker = self.worker
        worker.nixl_wrapper = AgentProxy(self.agent, self.observer)
        worker._log_failure = funnel(worker._log_failure, self.observer, worker._recving_metadata)
        worker._read_blocks_for_req = marked(worker._read_blocks_for_req, self.observer)

    def start(self, name="r", **how) -> None:
        self.worker.start_load_kv({name: meta(**how)})

    def finish(self, state="DONE") -> None:
        self.agent.states = dict.fromkeys(self.agent.states, state)
        self.worker.poll()

    def taken(self):
        return self.records.take(100)

    def ended(self) -> list[tuple[str, str]]:
        return [(transfer.request, transfer.kind) for transfer in self.taken()]


def carried(variant="on", facts=None, url="http://127.0.0.1:1", **more) -> Carried:
    """What a front end was told, for the workers."""
    known = {"vllm": "0.32.0", "model_class": "gqa", "kv_heads_per_rank": 4} if facts is None else facts
    decision = variant and Decision(feature="cross_layer_blocks", flag="clb", variant=variant, reason="arm", epoch=2)
    registration = {"deployment": "c/ns/d", "generation": "r41", "role": "decode", "facts": known}
    return Carried(
        source="registered", reason="arm", registration_id="id", decision=decision or None, registered=True,
        registration=registration | more, url=url,
    )  # fmt: skip


def config(what: Carried | None = None, rank: int = 0, world_size: int = 1) -> SimpleNamespace:
    """The parts of a VllmConfig that a worker of ours reads."""
    made = SimpleNamespace(
        kv_transfer_config=SimpleNamespace(engine_id="engine-d", kv_connector_extra_config={}),
        parallel_config=SimpleNamespace(rank=rank, world_size=world_size),
    )
    if what is not None:
        carry.put(made, what)
    return made


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def meta_of():
    """Makes what the scheduler sends for a request."""
    return meta


@pytest.fixture
def told():
    """Makes what a front end was told."""
    return carried


@pytest.fixture
def configured():
    """Makes a configuration that carries it."""
    return config


@pytest.fixture
def two_ranks() -> Watched:
    """The other side has two ranks for each of ours: two handles to a request."""
    return Watched(ranks=2)
