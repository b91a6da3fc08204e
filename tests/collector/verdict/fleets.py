# SPDX-License-Identifier: Apache-2.0
"""Synthetic fleets for the decision table: each event drawn directly, so that a test says what it wants to see."""

from __future__ import annotations

from math import log

import numpy as np

from kvflags_collector.verdict.events import Events
from kvflags_collector.verdict.evidence import Inputs
from kvflags_collector.verdict.outcomes import Outcome
from kvflags_collector.verdict.treatment import Treatment

# Standard deviations of one event, as measured changes of this kind have: time to first token is the noisy one.
NOISE = {
    Outcome.TIME_TO_FIRST_TOKEN: 0.10,
    Outcome.INTER_TOKEN_LATENCY: 0.015,
    Outcome.OUTPUT_TOKENS: 0.01,
    Outcome.FAILED_TRANSFERS: 0.5,
    Outcome.KV_BLOCKS: 0.0,
    Outcome.PREEMPTIONS: 0.1,
}


def events(treated=30, control=30, *, effects=(), strata=("FLASH_ATTN",), stratum=None, failures=10, seed=7, **more):
    """effects: {outcome: ratio}, e.g. -0.3 for 30 % less. stratum: of each event, the treated first."""
    draw = np.random.default_rng(seed)
    n = treated + control
    arm = np.arange(n) < treated
    effects = dict(effects)
    values = {
        outcome: draw.normal(0, 1, n) * noise + arm * log(1 + effects.get(outcome, 0.0))
        for outcome, noise in NOISE.items()
    }
    found = {
        "deployment": np.arange(n),
        "cohort": np.arange(n) % 2,
        "stratum": np.zeros(n, dtype=np.int64) if stratum is None else np.asarray(stratum),
        "treated": arm,
        "values": values,
        "failures": np.full(n, float(failures)),
        "strata": tuple(strata),
    }
    return Events(**(found | more))


def inputs(of, **more):
    """All that a verdict asks for, in order, about those events."""
    deployments = [
        Treatment(
            deployment=f"d{number}",
            generation="r2",
            treated=bool(treated),
            stratum=of.strata[stratum],
            effective=bool(treated),
            layout="asked for BHLNC",
        )
        for number, treated, stratum in zip(of.deployment, of.treated, of.stratum, strict=True)
    ]
    found = {
        "key": "f",
        "running": True,
        "deployments": deployments,
        "days": 10.0,
        "outcomes": True,
        "events": of if len(of) else None,
    }
    return Inputs(**(found | more))
