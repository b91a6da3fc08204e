# SPDX-License-Identifier: Apache-2.0
"""Whether the treatment happened as meant, by stratum. A check: it takes strata out, never single deployments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvflags_collector.verdict.words import Finding, count

__all__ = ["Treatment", "effective_share", "spoiled"]

_FIND_OUT = "Find out why the layout did not take hold (kvflags engines list), then replace those deployments."


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """How the treatment went in one deployment of the comparison (its latest generation).

    treated: else control. effective: null while it is not known. layout: what was asked for and what came of it, in
    words. mixed: its engines held different layouts. silent: an engine has NIXL's telemetry disabled.
    """

    deployment: str
    generation: str
    treated: bool
    stratum: str = ""
    effective: bool | None = None
    layout: str = ""
    mixed: bool = False
    silent: bool = False


def effective_share(deployments: Sequence[Treatment]) -> float | None:
    """Of the treated deployments whose layout is known; null without any."""
    known = [one.effective for one in deployments if one.treated and one.effective is not None]
    return sum(known) / len(known) if known else None


def spoiled(deployments: Sequence[Treatment], least: float) -> dict[str, list[Finding]]:
    """Stratum -> why its comparison cannot be trusted; those that can be are absent."""
    strata: dict[str, list[Treatment]] = defaultdict(list)
    for one in deployments:
        strata[one.stratum].append(one)
    found = {
        stratum: list(_spoils(members, least, f" of {stratum}" if len(strata) > 1 else ""))
        for stratum, members in sorted(strata.items())
    }
    return {stratum: findings for stratum, findings in found.items() if findings}


def _spoils(members: Sequence[Treatment], least: float, where: str) -> Iterator[Finding]:
    for one in members:
        if one.mixed:
            says = f"{one.deployment} {one.generation} is mixed: engines that may be paired held different layouts."
            next_ = f"Replace the prefill and decode engines of {one.deployment} together."
            yield Finding("mixed_generation", says, next_)
    for one in members:
        if one.silent:
            says = f"{one.deployment} {one.generation} runs with NIXL_TELEMETRY_ENABLE off: its transfers are not seen."
            yield Finding(
                "telemetry_disabled", says, f"Unset NIXL_TELEMETRY_ENABLE for {one.deployment} and replace it."
            )
    yield from _ineffective(members, least, where)


def _ineffective(members: Sequence[Treatment], least: float, where: str) -> Iterator[Finding]:
    share = effective_share(members)
    if share is None or share >= least:
        return
    known = [one for one in members if one.treated and one.effective is not None]
    took_hold = sum(one.effective is True for one in known)
    says = f"The layout took hold in {took_hold} of {count(len(known), 'treated deployment')}{where} ({share:.0%})"
    yield Finding("not_effective", f"{says}; {least:.0%} are needed.", _FIND_OUT)
    for one in known:
        if not one.effective:
            yield Finding("not_effective", f"{one.deployment} {one.generation}: {one.layout}.", _FIND_OUT)
