# SPDX-License-Identifier: Apache-2.0
"""The stat logger that vLLM's front end calls once an iteration: what users feel, added up for an export a minute.

It is handed to `AsyncLLM(stat_loggers=...)`, the list that the entry points of `vllm.stat_logger_plugins` are put into
as well. As an entry point it would be loaded wherever the package is installed, and any such logger switches vLLM's
statistics on again under `--disable-log-stats`, also with KVFLAGS_DISABLED.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kvflags.connector.guard import guarded
from kvflags.decision import carry, last_heard
from kvflags.decision.answer import adopted
from kvflags.decision.state import State
from kvflags.flags import Decision, Facts
from kvflags.settings import Settings
from kvflags.telemetry.instruments import InstrumentName
from kvflags.telemetry.labels import Identity, Labels, front_end_labels
from kvflags.telemetry.reporter import Reporter
from kvflags.telemetry.tally import Interval, Tally

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from kvflags.connector.host import IterationStats, SchedulerStats
    from kvflags.decision.carry import Carried
    from kvflags.telemetry.metrics import Report

__all__ = ["Outcomes", "stat_logger", "wanted"]

_log = logging.getLogger("vllm.kvflags")


def wanted(vllm_config: VllmConfig, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this front end's outcomes are to be sent: it takes part, and nobody switched the SDK off."""
    carried = carry.get(vllm_config)
    switched_off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return carried is not None and carried.url is not None and not switched_off


def stat_logger(base: type) -> type:
    """Our subclass of vLLM's AggregateStatLoggerBase: one instance for all engines of a front end, so one thread."""

    class OutcomesStatLogger(base):  # type: ignore[misc] # vLLM's own class, known when it runs
        """Calls `Outcomes`, and never fails."""

        def __init__(self, vllm_config: VllmConfig, engine_indexes: Sequence[int]) -> None:
            self._outcomes = _outcomes(self, vllm_config, engine_indexes)

        def record(
            self,
            scheduler_stats: SchedulerStats | None,
            iteration_stats: IterationStats | None,
            mm_cache_stats: object = None,  # noqa: ARG002 (vLLM's signature; later releases add to it)
            engine_idx: int = 0,
            **_: object,
        ) -> None:
            if self._outcomes is not None:
                _record(self._outcomes, engine_idx, scheduler_stats, iteration_stats)

        def log_engine_initialized(self) -> None:
            if self._outcomes is not None:
                _start(self._outcomes)

    return OutcomesStatLogger


@guarded(None)
def _outcomes(logger: object, vllm_config: VllmConfig, engine_indexes: Sequence[int]) -> Outcomes | None:
    carried = carry.get(vllm_config)
    if carried is None or not wanted(vllm_config):
        return None
    outcomes = Outcomes(vllm_config, carried, engine_indexes)
    # There is no call at the end: this one is made when the front end lets go of the logger, or exits.
    weakref.finalize(logger, outcomes.close)
    return outcomes


@guarded(None)
def _record(
    outcomes: Outcomes, engine: int, scheduler: SchedulerStats | None, iteration: IterationStats | None
) -> None:
    outcomes.record(engine, scheduler, iteration)


@guarded(None)
def _start(outcomes: Outcomes) -> None:
    outcomes.start()


class Outcomes:
    """One front end's. Made and called on its thread; `start` once its engines run."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        carried: Carried,
        engine_indexes: Sequence[int],
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._vllm_config, self._carried = vllm_config, carried
        self._settings = Settings.from_environ(environ)
        self._tallies = {index: Tally() for index in engine_indexes}
        self._reporter = Reporter(self._reports, str(carried.url), self._settings.token, environ=environ)

    def record(self, engine: int, scheduler: SchedulerStats | None, iteration: IterationStats | None) -> None:
        """Add one iteration of an engine."""
        tally = self._tallies.get(engine)
        if tally is not None:
            tally.add(lambda interval: _fold(interval, scheduler, iteration))

    def start(self) -> None:
        """Nothing is forked any more: the engine cores run."""
        self._reporter.start()

    def close(self) -> None:
        """Send what is left, within 1 s."""
        self._reporter.shutdown()

    def _reports(self) -> list[Report]:
        """On the export thread."""
        from kvflags.telemetry.metrics import Report  # noqa: PLC0415 (it brings the SDK)

        decision = _decision(self._carried, self._settings)
        blocks = self._blocks()
        return [Report(self._labels(index, decision), tally.take(), blocks) for index, tally in self._tallies.items()]

    def _blocks(self) -> int | None:
        # The front end adds up what its engines report, which are alike.
        blocks = self._vllm_config.cache_config.num_gpu_blocks
        return int(blocks) // len(self._tallies) if blocks else None

    def _labels(self, index: int, decision: Decision | None) -> Labels:
        carried, base = self._carried, str(self._vllm_config.kv_transfer_config.engine_id)
        # As vLLM's engine cores name themselves. On other nodes the base may be another: then nothing joins, but the
        # engines of this front end are still told apart.
        ranks = self._vllm_config.parallel_config.data_parallel_size
        name = f"{base}_dp{index}" if ranks > 1 else base
        engine = Identity(id=name, deployment=carried.deployment, generation=carried.generation, role=carried.role)
        return front_end_labels(engine, decision, Facts.from_json(carried.registration.get("facts") or {}))


def _fold(interval: Interval, scheduler: SchedulerStats | None, iteration: IterationStats | None) -> None:
    if scheduler is not None:
        interval.observe(InstrumentName.KV_USAGE, (scheduler.kv_cache_usage,))
        interval.count(InstrumentName.PREFIX_QUERIES, scheduler.prefix_cache_stats.queries)
        interval.count(InstrumentName.PREFIX_HITS, scheduler.prefix_cache_stats.hits)
    if iteration is not None:
        interval.observe(InstrumentName.TTFT, iteration.time_to_first_tokens_iter)
        interval.observe(InstrumentName.ITL, iteration.inter_token_latencies_iter)
        interval.count(InstrumentName.PROMPT_TOKENS, iteration.num_prompt_tokens)
        interval.count(InstrumentName.OUTPUT_TOKENS, iteration.num_generation_tokens)
        interval.count(InstrumentName.PREEMPTIONS, iteration.num_preempted_reqs)
        for request in iteration.finished_requests:
            interval.count(InstrumentName.REQUESTS, 1, str(request.finish_reason))


def _decision(carried: Carried, settings: Settings) -> Decision | None:
    """The decision that spans carry by now: the worker may have registered later than the front end, and left word."""
    state = None if carried.registered or carried.local else State.of(settings)
    heard = last_heard.read(state, []) if state else None
    return adopted(carried, heard) if heard else carried.decision
