# SPDX-License-Identifier: Apache-2.0
"""What a comparison still lacks before it may conclude anything good: each minimum, with both numbers."""

from __future__ import annotations

from collections.abc import Iterator

from kvflags_collector.verdict.compare import Compared
from kvflags_collector.verdict.evidence import Inputs
from kvflags_collector.verdict.outcomes import PRIMARY
from kvflags_collector.verdict.words import Finding, count

__all__ = ["unmet"]


def unmet(inputs: Inputs, compared: Compared | None) -> Iterator[Finding]:
    """Every minimum that is not met."""
    minima = inputs.minima
    if not inputs.running:
        next_ = f"Start it: kvflags rollout set {inputs.key} 25% --reason TEXT"
        yield Finding("not_running", "The flag is not running.", next_)
    yield from _too_few(inputs)
    if inputs.days < minima.days:
        says = f"{inputs.days:.1f} days with {minima.share:.0%} or more treated; {minima.days:g} are needed."
        next_ = f"Wait for another {minima.days - inputs.days:.1f} days at {minima.share:.0%} or more."
        yield Finding("too_short", says, next_)
    if not inputs.outcomes:
        says = "No outcomes were received (time to first token, inter-token latency): transfers alone decide nothing."
        yield Finding("no_outcomes", says, "Let the engines send outcomes: vLLM 0.16 or later, kvflags' plugin loaded.")
    else:
        yield from _too_few_events(inputs, compared)


def _too_few(inputs: Inputs) -> Iterator[Finding]:
    treated, control = (inputs.number(treated=arm) for arm in (True, False))
    if treated >= inputs.minima.treated and not control:
        says = f"All {count(treated, 'deployment')} are treated: without concurrent controls there is no comparison."
        yield Finding(
            "no_controls", says, "Lower the percentage, or hold some back; released ones leave the comparison."
        )
        return
    for arm, number, least in (
        ("treated", treated, inputs.minima.treated),
        ("control", control, inputs.minima.control),
    ):
        if number < least:
            says = f"{count(number, f'{arm} deployment')} in the comparison; {least} are needed."
            yield Finding("too_few_deployments", says, "Raise the percentage, or enrol more deployments.")


def _too_few_events(inputs: Inputs, compared: Compared | None) -> Iterator[Finding]:
    """An event takes a replacement and three days; a deployment that was not replaced has none."""
    numbers = (compared.treated, compared.control) if compared else (0, 0)
    leasts = (inputs.minima.treated, inputs.minima.control)
    for arm, number, least in zip(("treated", "control"), numbers, leasts, strict=True):
        if number < least:
            says = f"{count(number, f'{arm} event')} can be compared so far; {least} are needed."
            yield Finding(
                "too_few_events", says, "Replace deployments of both arms (kvflags plan restarts), wait 3 days."
            )
    if compared is None or min(numbers) < 1:
        return
    primary = compared.outcomes.get(PRIMARY)
    if primary is None:
        says = "Time to first token is not known before and after the event in both arms."
        yield Finding("no_outcomes", says, "Let the engines send outcomes in both arms, also before the event.")
    elif primary.effect is not None and not primary.effect.varies:
        says = "Time to first token does not vary between deployments at all: no measurement does that."
        yield Finding("no_variation", says, "Check what the engines send (kvflags engines list).")
