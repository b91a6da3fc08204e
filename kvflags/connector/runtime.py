# SPDX-License-Identifier: Apache-2.0
"""One worker's side of kvflags: put in place when its connector is made, working once its caches are registered."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from kvflags.connector.agent import AgentProxy, funnel, marked
from kvflags.connector.facts import static_facts, worker_facts
from kvflags.connector.guard import guarded
from kvflags.connector.observe import Observer
from kvflags.connector.requested import OVERRIDE
from kvflags.decision import carry
from kvflags.features import CROSS_LAYER_BLOCKS, FEATURES
from kvflags.flags import Decision, Facts, Role, minor
from kvflags.settings import Settings
from kvflags.telemetry.export import Exporter
from kvflags.telemetry.labels import Engine, Labels, Layout, labels
from kvflags.telemetry.records import Records

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from kvflags.connector.host import Worker
    from kvflags.decision.carry import Carried
    from kvflags.decision.heartbeat import Heartbeats

__all__ = ["Runtime"]

# An engine that stops may wait this long for us in all.
_STOP_S = 1.0

# The methods in which the pulling and the pushing worker post one request's transfers.
_POSTING = ("_read_blocks_for_req", "_xfer_blocks_for_req")


class Runtime:
    """Made on the engine's thread of a worker process, once for a connector. Starts no thread before `start`."""

    def __init__(self, worker: Worker, vllm_config: VllmConfig, environ: Mapping[str, str] = os.environ) -> None:
        self._worker = worker
        self.vllm_config = vllm_config
        self._environ = environ
        self._settings = Settings.from_environ(environ)
        self._carried = carry.get(vllm_config)
        self._facts = _facts(self._carried, vllm_config, self._settings)
        self._records = Records()
        self.observer = Observer(
            self._records,
            declined=lambda request: request in getattr(worker, "_recv_failures", ()),
            waiting=lambda engine: engine not in worker._remote_agents,
            mismatches=_mismatches(self._facts),
        )
        self._labels: Labels | None = None
        self._exporter: Exporter | None = None
        self._heartbeats: Heartbeats | None = None
        # Without NIXL's telemetry vLLM fails every transfer. That is not ours to measure, nor to mend: see settings.
        if self._url and self._settings.nixl_telemetry:
            self._install()

    @property
    def _url(self) -> str | None:
        return self._carried.url if self._carried else self._settings.destination

    @property
    def _decision(self) -> Decision | None:
        return self._carried.decision if self._carried else None

    def _install(self) -> None:
        worker, observer = self._worker, self.observer
        worker.nixl_wrapper = AgentProxy(worker.nixl_wrapper, observer)
        worker._log_failure = funnel(worker._log_failure, observer, worker._recving_metadata)
        for name in _POSTING:
            if hasattr(worker, name):
                setattr(worker, name, marked(getattr(worker, name), observer))

    def start(self, layers: int, requested: str | None) -> None:
        """The caches of so many layers are registered: everything is known now."""
        if self._labels is not None or self._url is None:
            return
        facts = worker_facts(self._worker)
        self._facts = self._facts.updated(facts)
        layout = self._layout(layers, requested)
        self._labels = labels(self._engine(), self._decision, self._facts, layout)
        self._beat(facts, layout)
        if self._settings.nixl_telemetry:
            self._export(self._url, self._labels)

    def _layout(self, layers: int, requested: str | None) -> Layout:
        feature = FEATURES.get(self._decision.feature if self._decision else "", CROSS_LAYER_BLOCKS)
        regions = len(self._worker.block_len_per_layer)
        return Layout(
            requested=self._environ.get(OVERRIDE) or requested,
            resolved=str(self._worker.kv_cache_layout),
            regions=regions,
            layers=layers,
            effective=feature.effective(regions, layers),
        )

    def _engine(self) -> Engine:
        parallel, carried = self.vllm_config.parallel_config, self._carried
        return Engine(
            id=str(self.vllm_config.kv_transfer_config.engine_id),
            deployment=carried.deployment if carried else self._settings.deployment,
            generation=carried.generation if carried else self._settings.generation,
            role=carried.role if carried else self._settings.role or Role.BOTH,
            mode=str(getattr(self._worker, "_TRANSFER_MODE", "pull")),
            rank=int(parallel.rank),
            world_size=int(parallel.world_size),
        )

    def _export(self, url: str, first: Labels) -> None:
        self._exporter = Exporter(
            self._records,
            lambda: self._labels or first,
            url,
            self._settings.token,
            environ=self._environ,
            on_flush=self._flushed,
        )
        self._exporter.start()

    def _beat(self, facts: Mapping[str, str | int], layout: Layout) -> None:
        engine = self._engine()
        if self._carried is None or engine.rank:
            return
        from kvflags.decision.heartbeat import Heartbeats  # noqa: PLC0415 (ranks other than 0 need no HTTP client)

        def adopt(decision: Decision) -> None:
            # What runs is frozen; only what later spans say of it changes.
            self._labels = labels(engine, decision, self._facts, layout)

        self._heartbeats = Heartbeats(self._settings, self._carried, engine.id, engine.world_size, on_identity=adopt)
        # Rank 0 sees itself only: with more ranks, the spans of each say whether it is effective.
        effective = layout.effective if engine.world_size == 1 else None
        self._heartbeats.update(facts=dict(facts), layout={**asdict(layout), "effective": effective})
        self._heartbeats.start()

    @guarded(None)
    def _flushed(self, lost: int) -> None:
        if self._heartbeats is not None:
            exercised = {"ok": self.observer.ok, "errors": self.observer.errors}
            self._heartbeats.update(exercised=exercised, dropped={"spans": lost, "events": 0})

    def close(self) -> None:
        """The connector has shut down: what was under way ends here, what is queued is sent, within a second."""
        self.observer.close()
        if self._exporter is not None:
            self._flushed(self._exporter.dropped)
        deadline = time.monotonic() + _STOP_S
        # Side by side, since each may take a second where the collector hangs, and a second is what both have.
        stopping = threading.Thread(target=self._heartbeats.stop, daemon=True) if self._heartbeats else None
        if stopping is not None:
            stopping.start()
        if self._exporter is not None:
            self._exporter.shutdown(_STOP_S)
        if stopping is not None:
            stopping.join(max(0.0, deadline - time.monotonic()))


def _facts(carried: Carried | None, vllm_config: VllmConfig, settings: Settings) -> Facts:
    known = carried.registration.get("facts") if carried else None
    return Facts.from_json(known) if known else static_facts(vllm_config, settings)


def _mismatches(facts: Facts) -> tuple[str, ...]:
    """What vLLM says in a handshake that failed because of the layout."""
    release = minor(facts.vllm)
    if release is not None and release < (0, 29):
        return ("compatibility hash mismatch",)
    # From 0.29 the layout is no part of the hash: where that differs, vLLM's version or the model does.
    return ("expects same kv_cache_layout",)
