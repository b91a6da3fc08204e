# SPDX-License-Identifier: Apache-2.0
"""What makes a comparison one that cannot be trusted: row 3, and a treatment that did not happen as meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from kvflags_collector.verdict import mismatch
from kvflags_collector.verdict.compare import Compared, moved_invariants
from kvflags_collector.verdict.events import Events
from kvflags_collector.verdict.evidence import Check, Inputs
from kvflags_collector.verdict.words import Finding, percent

__all__ = ["distrusted", "warnings"]

_SAYS = {
    Check.ASSIGNMENT: (
        "sample_ratio_mismatch",
        "The arms are not as large as they were drawn",
        "Find out which deployments do not report (kvflags deployments list), and since which release.",
    ),
    Check.SILENCE: (
        "silence",
        "Deployments of one arm fall silent more often than the other's",
        "Find out why they stopped reporting; a deployment that dies of the feature is missing from its arm.",
    ),
    Check.RESTARTS: (
        "restart_rates_differ",
        "Deployments of one arm are replaced more often than the other's",
        "Replace controls as often as treated deployments: kvflags plan restarts covers both arms.",
    ),
    Check.LEFT_OUT: (
        "left_out",
        "Events of one arm are left out more often than the other's (changed version, too little seen)",
        "Change backend, block size and release in both arms alike, or in neither.",
    ),
}


def distrusted(
    inputs: Inputs, compared: Compared | None, spoiled: Mapping[str, Sequence[Finding]]
) -> Iterator[Finding]:
    """Why nothing can be concluded for any stratum."""
    strata = {one.stratum for one in inputs.deployments}
    if strata and strata <= spoiled.keys():
        for findings in spoiled.values():
            yield from findings
    yield from _mismatches(inputs, mismatch.BLOCKS)
    if inputs.events is not None and compared is not None:
        yield from _incomparable(inputs, inputs.events, compared)
        for name, effect in moved_invariants(inputs.events).items():
            says = f"The treated deployments' {name} changed by {percent(effect.delta)}, which the feature cannot do."
            yield Finding("invariant_moved", says, "Find out what else changed in one arm, and start over.")


def warnings(inputs: Inputs) -> list[str]:
    """What is not yet enough to distrust the comparison, but should be looked into."""
    return [one.says for one in _mismatches(inputs, mismatch.WARNS)]


def _mismatches(inputs: Inputs, limit: float) -> Iterator[Finding]:
    for check, trials in inputs.trials.items():
        if mismatch.e_value(trials.probability, trials.treated) >= limit:
            reason, says, next_ = _SAYS[check]
            expected = float(trials.probability.sum())
            got = int(trials.treated.sum())
            yield Finding(reason, f"{says}: {got} of {len(trials.treated)} treated, {expected:.1f} expected.", next_)


def _incomparable(inputs: Inputs, events: Events, compared: Compared) -> Iterator[Finding]:
    """Both arms are large enough, and no treated event has a control to stand beside."""
    number = int(events.treated.sum())
    enough = number >= inputs.minima.treated and len(events) - number >= inputs.minima.control
    if not enough or compared.treated:
        return
    treated, control = (_strata(events, treated=arm) for arm in (True, False))
    if treated & control:
        says = f"None of {number} treated events has a control event of its own cohort and stratum."
        yield Finding("not_comparable", says, "Replace controls in the same weeks as treated deployments.")
    else:
        on, off = (", ".join(sorted(names)) for names in (treated, control))
        says = f"The arms are not comparable: no stratum holds both (treated: {on}; control: {off})."
        yield Finding(
            "not_comparable", says, "Run both arms on the same backend, GPU, model, block size and transport."
        )


def _strata(events: Events, *, treated: bool) -> set[str]:
    return {events.strata[index] for index in np.unique(events.stratum[events.treated == treated])}
