# SPDX-License-Identifier: Apache-2.0
"""The verdict on a flag. Pure: counts and facts in, a state with its reasons in words out.

Judged here is whether there is anything to judge: `invalid` where the treatment did not happen as meant, else `waiting`
with each minimum that is not met. The comparison of the arms' outcomes is not computed, so nothing is said about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Inputs", "Minima", "Treatment", "Verdict", "VerdictState", "verdict"]


class VerdictState(StrEnum):
    """What can be said of a flag."""

    WAITING = "waiting"
    ON_TRACK = "on_track"
    HOLD = "hold"
    NEUTRAL = "neutral"
    REGRESSION = "regression"
    INVALID = "invalid"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Minima:
    """What a comparison needs. With fewer than 8 deployments an arm has no variance worth the name; 7 days at a quarter
    of the fleet cover a weekend; with under 90 % effective, arms as assigned say little about the feature."""

    treated: int = 8
    control: int = 8
    days: float = 7.0
    share: float = 0.25
    effective: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """How the treatment went in one deployment of the comparison (its latest generation).

    treated: else control. effective: null while it is not known. layout: what was asked for and what came of it, in
    words. mixed: its engines held different layouts. silent: an engine has NIXL's telemetry disabled.
    """

    deployment: str
    generation: str
    treated: bool
    effective: bool | None = None
    layout: str = ""
    mixed: bool = False
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """key: of the flag. deployments: those in the comparison. days: for how long the treated share has been at its
    minimum. outcomes: whether any were received."""

    key: str
    running: bool
    deployments: Sequence[Treatment] = ()
    days: float = 0.0
    outcomes: bool = False
    minima: Minima = field(default_factory=Minima)

    @property
    def effective_share(self) -> float | None:
        """Of the treated deployments whose layout is known; null without any."""
        known = [d.effective for d in self.deployments if d.treated and d.effective is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """reason: a stable code, that of the first sentence of `why`. next: what to do, or what is waited for."""

    state: VerdictState
    reason: str
    why: tuple[str, ...]
    next: str


# (reason, sentence, what to do)
_Finding = tuple[str, str, str]


def verdict(inputs: Inputs) -> Verdict:
    """What spoils the comparison comes before what it lacks."""
    for state, look in ((VerdictState.INVALID, _spoiled), (VerdictState.WAITING, _unmet)):
        findings = list(look(inputs))
        if findings:
            reason, _, next_ = findings[0]
            return Verdict(state, reason, tuple(dict.fromkeys(says for _, says, _ in findings)), next_)
    why = "Every minimum is met, but this release does not compare the outcomes of the arms."
    return Verdict(VerdictState.WAITING, "not_compared", (why,), "Upgrade the collector to one that does.")


def _spoiled(inputs: Inputs) -> Iterator[_Finding]:
    for one in inputs.deployments:
        if one.mixed:
            says = f"{one.deployment} {one.generation} is mixed: engines that may be paired held different layouts."
            yield "mixed_generation", says, f"Replace the prefill and decode engines of {one.deployment} together."
    for one in inputs.deployments:
        if one.silent:
            says = f"{one.deployment} {one.generation} runs with NIXL_TELEMETRY_ENABLE off: its transfers are not seen."
            yield "telemetry_disabled", says, f"Unset NIXL_TELEMETRY_ENABLE for {one.deployment} and replace it."
    yield from _ineffective(inputs)


def _ineffective(inputs: Inputs) -> Iterator[_Finding]:
    share, least = inputs.effective_share, inputs.minima.effective
    if share is None or share >= least:
        return
    known = [one for one in inputs.deployments if one.treated and one.effective is not None]
    took_hold = sum(one.effective is True for one in known)
    next_ = "Find out why the layout did not take hold (kvflags engines list), then replace those deployments."
    says = f"The layout took hold in {took_hold} of {_count(len(known), 'treated deployment')} ({share:.0%})"
    yield "not_effective", f"{says}; {least:.0%} are needed.", next_
    for one in known:
        if not one.effective:
            yield "not_effective", f"{one.deployment} {one.generation}: {one.layout}.", next_


def _unmet(inputs: Inputs) -> Iterator[_Finding]:
    minima = inputs.minima
    if not inputs.running:
        yield "not_running", "The flag is not running.", f"Start it: kvflags rollout set {inputs.key} 25% --reason TEXT"
    for arm, least in (("treated", minima.treated), ("control", minima.control)):
        number = sum(one.treated == (arm == "treated") for one in inputs.deployments)
        if number < least:
            says = f"{_count(number, f'{arm} deployment')} in the comparison; {least} are needed."
            yield "too_few_deployments", says, "Raise the percentage, or enrol more deployments."
    if inputs.days < minima.days:
        says = f"{inputs.days:.1f} days with {minima.share:.0%} or more treated; {minima.days:g} are needed."
        yield "too_short", says, f"Wait for another {minima.days - inputs.days:.1f} days at {minima.share:.0%} or more."
    if not inputs.outcomes:
        says = "No outcomes were received (time to first token, inter-token latency): transfers alone decide nothing."
        yield "no_outcomes", says, "Nothing to do: this release receives no outcomes."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
