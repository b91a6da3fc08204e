# SPDX-License-Identifier: Apache-2.0
"""One event's measures from its hours: the log ratio of every outcome, and whether enough was seen to count it."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvflags.telemetry.instruments import InstrumentName as Name
from kvflags_collector.judge.hours import Hours
from kvflags_collector.verdict import errors
from kvflags_collector.verdict.arrays import Floats
from kvflags_collector.verdict.events import BEFORE_DAYS, change, complete, fixed_mix_change, level
from kvflags_collector.verdict.outcomes import Outcome

__all__ = ["enough", "measure"]

_BEFORE = BEFORE_DAYS * 24
_BLOCK = 6
_HOUR_S = 3600


def enough(hours: Hours) -> bool:
    """Whether the event counts."""
    before, after = _sides(hours.transfers)
    return bool(complete(before, after)[0])


def measure(hours: Hours) -> dict[str, Any]:
    """What is frozen of it, as `frozen_events.measured` has it."""
    failed, transfers = (_blocks(values) for values in (hours.failed, hours.transfers))
    values = {
        Outcome.TIME_TO_FIRST_TOKEN: _change(_mean(hours, Name.TTFT)),
        Outcome.INTER_TOKEN_LATENCY: _change(_mean(hours, Name.ITL)),
        Outcome.OUTPUT_TOKENS: _change(_log(hours.sums[Name.OUTPUT_TOKENS])),
        Outcome.FAILED_TRANSFERS: _failures(failed, transfers),
        Outcome.KV_BLOCKS: _change(_mean(hours, Name.KV_BLOCKS)),
        Outcome.PREEMPTIONS: _preemptions(hours),
        Outcome.POST_TIME: _by_size(hours, 3, 0),
        Outcome.LATENCY_PER_BYTE: _by_size(hours, 2, 1),
    }
    volume = _log(hours.transfers)
    return {
        "levels": _levels(hours),
        "values": {outcome.value: _known(value) for outcome, value in values.items()},
        "invariants": {"transfer volume": _known(_change(volume))},
        "days": [[_known(day) for day in side] for side in _days(_mean(hours, Name.TTFT))],
        "failed": failed.tolist(),
        "transfers": transfers.tolist(),
    }


def _sides(values: Floats) -> tuple[Floats, Floats]:
    return values[None, :_BEFORE], values[None, _BEFORE:]


def _change(values: Floats) -> float:
    return float(change(*_sides(values))[0])


def _levels(hours: Hours) -> dict[str, list[float | None]]:
    """The mean log of what has one, before and after: for display, and the only absolute figures that are frozen."""
    each = {
        Outcome.TIME_TO_FIRST_TOKEN: _mean(hours, Name.TTFT),
        Outcome.INTER_TOKEN_LATENCY: _mean(hours, Name.ITL),
        Outcome.OUTPUT_TOKENS: _log(hours.sums[Name.OUTPUT_TOKENS] / _HOUR_S),
        Outcome.KV_BLOCKS: _mean(hours, Name.KV_BLOCKS),
    }
    return {
        outcome.value: [_known(float(level(side)[0])) for side in _sides(values)] for outcome, values in each.items()
    }


def _log(values: Floats) -> Floats:
    """NaN where there is nothing: an idle hour says nothing of how fast it would have been."""
    return np.where(values > 0, np.log(np.where(values > 0, values, 1.0)), np.nan)


def _mean(hours: Hours, name: Name) -> Floats:
    """The log of each hour's mean."""
    sums, counts = hours.sums[name], hours.counts[name]
    return _log(np.where(counts > 0, sums / np.maximum(counts, 1), 0.0))


def _days(values: Floats) -> list[list[float]]:
    """Day means before and after."""
    days = values.reshape(-1, 24)
    known = np.isfinite(days)
    number = known.sum(axis=1)
    means = np.where(number > 0, np.where(known, days, 0.0).sum(axis=1) / np.maximum(number, 1), np.nan)
    return [means[:BEFORE_DAYS].tolist(), means[BEFORE_DAYS:].tolist()]


def _blocks(values: Floats) -> Floats:
    """Sums of 6 hours; what was not seen adds nothing, to failures and transfers alike."""
    return np.asarray(np.nan_to_num(values).reshape(-1, _BLOCK).sum(axis=1))


def _failures(failed: Floats, transfers: Floats) -> float:
    cut = errors.BASELINE_BLOCKS
    before, after = (failed[None, :cut], transfers[None, :cut]), (failed[None, cut:], transfers[None, cut:])
    if not before[1].any() or not after[1].any():
        return float("nan")
    return float(errors.log_ratio(before, after)[0])


def _preemptions(hours: Hours) -> float:
    """Of requests finished, over the whole of each side: single hours have too few."""
    sides = [
        (s.sum(), n.sum())
        for s, n in zip(_sides(hours.sums[Name.PREEMPTIONS]), _sides(hours.sums[Name.REQUESTS]), strict=True)
    ]
    if not all(requests > 0 for _, requests in sides):
        return float("nan")
    rates = [np.log((preempted + 0.5) / requests) for preempted, requests in sides]
    return float(rates[1] - rates[0])


def _by_size(hours: Hours, over: int, under: int) -> float:
    """The ratio of two columns by size class, with the weights of before."""
    if not hours.sizes:
        return float("nan")
    classes = [hours.sizes[name] for name in sorted(hours.sizes)]
    ratios = np.array([_log(np.where(c[under] > 0, c[over] / np.maximum(c[under], 1), 0.0)) for c in classes])
    weights = np.array([c[0][:_BEFORE].sum() for c in classes])
    return float(fixed_mix_change(ratios[None, :, :_BEFORE], ratios[None, :, _BEFORE:], weights[None])[0])


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
