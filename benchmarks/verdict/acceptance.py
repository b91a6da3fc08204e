# SPDX-License-Identifier: Apache-2.0
"""How often the verdict is wrong, how often it sees what is there, and what the naive methods do on the same rollouts.

    python benchmarks/verdict/acceptance.py [--rollouts 2000] [--seed 1]

Every figure stands beside the one it is held to; exits 1 when one is missed. Seeded: the same numbers each time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median
from typing import NamedTuple

import numpy as np
import rivals

from kvflags_collector.verdict import errors, mismatch
from kvflags_collector.verdict.decide import VerdictState
from kvflags_collector.verdict.effect import Design, Effect
from kvflags_collector.verdict.forecast import more_treated
from kvflags_collector.verdict.outcomes import PRIMARY
from kvflags_collector.verdict.placebo import DeploymentVerdict, place
from kvflags_collector.verdict.simulate.exposure import expose
from kvflags_collector.verdict.simulate.fleet import draw
from kvflags_collector.verdict.simulate.plan import FIRST_LOOK, Plan
from kvflags_collector.verdict.simulate.rollout import Rollout, reporting, simulate

SIZES = (20, 50, 200)
ALPHA = 0.05


class Figure(NamedTuple):
    """limit: `<=` or `>=` and the number it is held to."""

    name: str
    value: float
    limit: str

    @property
    def met(self) -> bool:
        bound = float(self.limit[2:])
        return self.value <= bound if self.limit.startswith("<=") else self.value >= bound


class Looks(NamedTuple):
    """What was ever said in one rollout: ours and the others'."""

    excluded: bool
    below: bool
    asymptotic: bool
    plain: bool
    plain_better: bool
    half_width: float
    raw_half_width: float
    resolved: float


def watch(plan: Plan, seed: int, number: int) -> Looks:
    """Every look at the effect on time to first token; `excluded` is of the true mean effect."""
    rollout = Rollout(plan, np.random.default_rng([seed, number]))
    truth = plan.log_effects[0]
    said = dict.fromkeys(("excluded", "below", "asymptotic", "plain", "plain_better"), False)
    effects: list[Effect] = []
    for day in sorted(set(rollout.matured.tolist())):
        effect = _effect(rollout, day, rollout.events.values[PRIMARY])
        if effect is None:
            continue
        effects.append(effect)
        own = effect.interval(ALPHA)
        said["excluded"] |= not own.low <= truth <= own.high
        said["below"] |= own.high < 0
        low, high = rivals.asymptotic(effect)
        said["asymptotic"] |= not low <= truth <= high
        low, high = rivals.plain_t(effect)
        said["plain"] |= not low <= truth <= high
        said["plain_better"] |= high < 0 and effect.delta <= np.log(0.95)
    widths = [_half(effects[-1]) if effects else np.nan, _raw(rollout)]
    return Looks(**said, half_width=widths[0], raw_half_width=widths[1], resolved=_resolved(effects))


def _effect(rollout: Rollout, day: int, values: np.ndarray) -> Effect | None:
    seen = rollout.matured <= day
    events = rollout.events
    return Design(events.cohort[seen], events.stratum[seen], events.treated[seen]).effect(values[seen])


def _half(effect: Effect | None) -> float:
    if effect is None:
        return np.nan
    interval = effect.interval(ALPHA)
    return (interval.high - interval.low) / 2


def _raw(rollout: Rollout) -> float:
    values = rivals.levels(rollout, rollout.events.deployment, rollout.matured - 3)
    return _half(_effect(rollout, 10**6, values))


def _resolved(effects: Sequence[Effect]) -> float:
    """1 if the first forecast was kept, 0 if not, NaN if it was none or lay beyond the end."""
    first = next((one for one in effects if one.treated >= 8), None)
    if first is None or (more := more_treated(first, 0.0, ALPHA)) is None or more == 0:
        return np.nan
    due = [one for one in effects if one.treated >= first.treated + more]
    if not due:
        return np.nan
    until = [one for one in effects if one.treated <= due[0].treated]
    return float(any(not (i := one.interval(ALPHA)).low <= 0 <= i.high for one in until))


def naive(plan: Plan, seed: int, number: int) -> tuple[bool, bool]:
    """(whether a z test on failures ever fires, whether spans first say `better`)."""
    rollout = Rollout(plan, np.random.default_rng([seed, number]))
    looks = range(FIRST_LOOK, plan.end)
    return rivals.failure_z(rollout, looks), rivals.span_first(rollout, looks) < 0


def ratio(plan: Plan, seed: int, number: int) -> float:
    """The highest evidence of a sample-ratio mismatch over all looks."""
    generator = np.random.default_rng([seed, number])
    fleet = draw(plan, generator)
    exposure = expose(plan, fleet)
    there = reporting(plan, fleet, exposure)
    days = np.unique(exposure.day[there])
    seen = ((exposure.day <= day) & there for day in days)
    return max(mismatch.e_value(exposure.probability[rows], exposure.treated[rows]) for rows in seen)


def guard(plan: Plan, seed: int, number: int) -> tuple[float, float]:
    """(share of deployments whose guard fires in 14 days, the same with the threshold calibrated on the other half)."""
    fleet = draw(plan, np.random.default_rng([seed, number]))
    e, n = fleet.errors + fleet.excess, fleet.transfers
    kappa = errors.fleet_dispersion(fleet.errors[:, :28], n[:, :28])
    highest = errors.evidence((fleet.errors[:, :28], n[:, :28]), (e[:, 28:84], n[:, 28:84]), kappa).max(axis=1)
    half = len(highest) // 2
    return float(np.mean(highest > 20)), float(np.mean(highest[:half] > errors.threshold(highest[half:])))


def deployments(plan: Plan, seed: int, number: int) -> tuple[float, float]:
    """(share of treated deployments ever called worse or better, share called better) at 3, 7 and 14 days."""
    generator = np.random.default_rng([seed, number])
    fleet = draw(plan, generator)
    treated = fleet.lot < 0.5
    latency = fleet.latency + np.where(treated, fleet.effect, 0.0)[:, None] * (np.arange(plan.end) >= 7)
    found = []
    for horizon in (3, 7, 14):
        placed = place(latency[:, :7], latency[:, 7 : 7 + horizon], treated, np.zeros(len(treated), dtype=np.int64))
        assert placed is not None, "both arms are large"
        found.append([verdict.value for verdict in placed.verdicts])
    kinds = np.array(found)
    wrong = np.isin(kinds, [DeploymentVerdict.POSITIVE, DeploymentVerdict.NEGATIVE]).any(axis=0)
    return float(wrong.mean()), float((kinds == DeploymentVerdict.POSITIVE).any(axis=0).mean())


class Bench:
    def __init__(self, pool: Executor, rollouts: int, seed: int) -> None:
        self._pool, self.rollouts, self._seed = pool, rollouts, seed

    def run(self, work: Callable[[Plan, int, int], object], plan: Plan, share: float = 1.0) -> list:
        number = max(16, round(self.rollouts * share))
        return list(self._pool.map(partial(work, plan, self._seed), range(number), chunksize=8))


def _share(values: Iterable[object]) -> float:
    return float(np.nanmean([float(value) for value in values]))


def _ended(ends: list, state: VerdictState) -> float:
    return _share(end.state is state for end in ends)


def false_verdicts(bench: Bench) -> Iterator[Figure]:
    for size in SIZES:
        plan = Plan(deployments=size)
        ends = bench.run(simulate, plan)
        yield Figure(f"no effect, {size}: ready", _ended(ends, VerdictState.READY), "<=0.01")
        yield Figure(f"no effect, {size}: regression", _ended(ends, VerdictState.REGRESSION), "<=0.03")
        looks = bench.run(watch, plan)
        yield Figure(f"  t test at every look says 5 % better, {size}", _share(x.plain_better for x in looks), ">=0.05")
        z, span = zip(*bench.run(naive, plan, 0.1), strict=True)
        yield Figure(f"  z test on failures fires, {size}", _share(z), ">=0.7")
        yield Figure(f"  spans first say `better`, {size}", _share(span), ">=0.4")


def misses(bench: Bench) -> Iterator[Figure]:
    for size in SIZES:
        for sd in (0.15, 0.30):
            looks = bench.run(watch, Plan(deployments=size, heterogeneity=sd))
            yield Figure(f"effects differ by {sd}, {size}: misses", _share(x.excluded for x in looks), "<=0.05")
            # Where it is worst, so that a step back to it would be seen.
            limit = ">=0.07" if (sd, size) == (0.30, 200) else ">=0"
            yield Figure(f"  asymptotic sequence misses, {size}", _share(x.asymptotic for x in looks), limit)


def power(bench: Bench) -> Iterator[Figure]:
    for size, effect, limit in ((50, -0.2, 0.95), (200, -0.1, 0.95), (20, -0.4, 0.97)):
        looks = bench.run(watch, Plan(deployments=size, effect=effect, heterogeneity=0.1), 0.25)
        yield Figure(f"{effect:+.0%}, {size}: interval below 0", _share(x.below for x in looks), f">={limit}")
        widths = median(x.half_width / x.raw_half_width for x in looks if np.isfinite(x.half_width))
        yield Figure(f"  its width against a comparison without a before, {size}", widths, "<=0.2")


def failures(bench: Bench) -> Iterator[Figure]:
    for size, least, latest in ((20, 0.97, 18), (50, 0.99, 12)):
        ends = bench.run(simulate, Plan(deployments=size, error_ratio=5), 0.15)
        yield Figure(f"failures x5, {size}: regression", _ended(ends, VerdictState.REGRESSION), f">={least}")
        days = [end.day for end in ends if end.state is VerdictState.REGRESSION]
        yield Figure(f"  median day, {size}", median(days), f"<={latest}")
    fixed, _ = zip(*bench.run(guard, Plan(deployments=100), 0.02), strict=True)
    yield Figure("guard of one deployment, nothing wrong", _share(fixed), "<=0.05")
    stress = Plan(deployments=160, error_ar=0.99, burst_blocks=2)
    fixed, calibrated = zip(*bench.run(guard, stress, 0.02), strict=True)
    yield Figure("  failures that last (AR 0.99), threshold from controls", _share(calibrated), "<=0.07")
    yield Figure("  the same, fixed threshold", _share(fixed), ">=0")


def ratios(bench: Bench) -> Iterator[Figure]:
    for size in SIZES:
        found = bench.run(ratio, Plan(deployments=size))
        yield Figure(f"sample ratio in order, {size}: invalid", _share(e >= 100 for e in found), "<=0.01")
    found = bench.run(ratio, Plan(deployments=200, lost=0.5), 0.25)
    yield Figure("half of the treated lost, 200: invalid", _share(e >= 100 for e in found), ">=0.85")


def single(bench: Bench) -> Iterator[Figure]:
    wrong, _ = zip(*bench.run(deployments, Plan(deployments=40), 0.1), strict=True)
    yield Figure("one deployment, no effect: a verdict", _share(wrong), "<=0.08")
    _, seen = zip(*bench.run(deployments, Plan(deployments=60, effect=-0.4), 0.05), strict=True)
    yield Figure("one deployment, -40%: positive", _share(seen), ">=0.85")


def scopes(bench: Bench) -> Iterator[Figure]:
    for size in (50, 200):
        plan = Plan(deployments=size, strata_effects=(-0.2, 0.2, -0.2, -0.2))
        ends = bench.run(simulate, plan, 0.1)
        yield Figure(f"FLASHINFER +20%, {size}: in the scope", _share("FLASHINFER" in e.scope for e in ends), "<=0.02")


def forecasts(bench: Bench) -> Iterator[Figure]:
    for effect in (-0.1, -0.14, -0.2):
        looks = bench.run(watch, Plan(deployments=300, effect=effect, heterogeneity=0.1), 0.1)
        kept = [x.resolved for x in looks if np.isfinite(x.resolved)]
        if kept:
            yield Figure(f"{effect:+.0%}: settled by the forecast", _share(kept), ">=0.75")


PARTS = (false_verdicts, misses, power, failures, ratios, single, scopes, forecasts)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    missed, began = 0, time.monotonic()
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn")) as pool:
        bench = Bench(pool, given.rollouts, given.seed)
        for part in PARTS:
            for figure in part(bench):
                missed += not figure.met
                mark = "" if figure.met else "   MISSED"
                print(f"{figure.name:<60} {figure.value:>8.3f}  {figure.limit}{mark}", flush=True)
    print(f"{time.monotonic() - began:.0f} s, {missed} missed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
