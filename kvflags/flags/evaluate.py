# SPDX-License-Identifier: Apache-2.0
"""The precedence: what a generation without a pin is told, and why. The one place where that order is written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kvflags.flags.gates import Refusal
from kvflags.flags.model import Arm, Assignment, Comparison, Flag, Phase, Variant

__all__ = ["PRECEDENCE", "Line", "Ruling", "Standing", "evaluate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the ledger knows of one deployment when its generation is about to be pinned.

    `refusals`: the rules that the observed facts of any role meet. `unobserved`: what observation still lacks, in
    words, empty when complete. `changed`: facts of the registering engine that differ from those observed for its role.
    `opted`: `in` or `out`, by hand. `waived`: the operator vouches for the deployment, which has no baseline then.
    """

    refusals: tuple[Refusal, ...] = ()
    unobserved: str = ""
    changed: tuple[str, ...] = ()
    assignment: Assignment | None = None
    opted: str | None = None
    safe_mode: bool = False
    waived: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the precedence as `kvflags explain` prints it. `outcome` says what was found."""

    line: str
    outcome: str
    won: bool


@dataclass(frozen=True, slots=True)
class Ruling:
    """Variant, arm and comparison with the reason that decided them, and every line that was looked at."""

    variant: Variant
    reason: str
    arm: Arm | None = None
    comparison: Comparison = Comparison.EXCLUDED
    bucket: int | None = None
    trace: tuple[Line, ...] = field(default=(), compare=False)


# A line answers with its ruling when it decides, else with what it found.
_Answer = Ruling | str


def _kill_switch(flag: Flag, _: Standing) -> _Answer:
    return _off("kill_switch") if flag.kill_switch else "not set"


def _phase(flag: Flag, _: Standing) -> _Answer:
    return _off(f"phase_{flag.phase}") if flag.phase in {Phase.DRAFT, Phase.ABORTED} else flag.phase.value


def _opt_out(_: Flag, standing: Standing) -> _Answer:
    return _off("opt_out") if standing.opted == "out" else "not opted out"


def _safe_mode(_: Flag, standing: Standing) -> _Answer:
    return _off("safe_mode") if standing.safe_mode else "not in safe mode"


def _gate(_: Flag, standing: Standing) -> _Answer:
    return _off(f"gate:{standing.refusals[0].code}") if standing.refusals else "no rule refuses"


def _observation(_: Flag, standing: Standing) -> _Answer:
    if standing.unobserved:
        return _off("not_observed")
    return _off("facts_changed") if standing.changed else "observed, and as observed"


def _opt_in(_: Flag, standing: Standing) -> _Answer:
    return Ruling(Variant.ON, "opt_in") if standing.opted == "in" else "not opted in"


def _holdback(flag: Flag, standing: Standing) -> _Answer:
    if flag.phase == Phase.COMPLETED:
        return "nobody is held back from a default"
    dealt = standing.assignment
    held = dealt is not None and dealt.reason == "holdback"
    return _dealt(dealt, standing) if dealt is not None and held else "not held back"


def _arm(flag: Flag, standing: Standing) -> _Answer:
    if flag.phase == Phase.COMPLETED:
        return Ruling(Variant.ON, "completed")
    return "no assignment yet" if standing.assignment is None else _dealt(standing.assignment, standing)


def _default(_: Flag, __: Standing) -> _Answer:
    return _off("default")


PRECEDENCE: tuple[tuple[str, Callable[[Flag, Standing], _Answer]], ...] = (
    ("kill switch", _kill_switch),
    ("phase", _phase),
    ("opt-out", _opt_out),
    ("safe mode", _safe_mode),
    ("gate", _gate),
    ("observation", _observation),
    ("opt-in", _opt_in),
    ("holdback", _holdback),
    ("enrolment and arm", _arm),
    ("default", _default),
)


def evaluate(flag: Flag, standing: Standing) -> Ruling:
    """Go down the precedence; the first line that decides wins, and the trace keeps all that were asked."""
    trace: list[Line] = []
    for name, ask in PRECEDENCE:
        answer = ask(flag, standing)
        if isinstance(answer, Ruling):
            trace.append(Line(name, _says(answer, standing), won=True))
            return Ruling(answer.variant, answer.reason, answer.arm, answer.comparison, answer.bucket, tuple(trace))
        trace.append(Line(name, answer, won=False))
    raise AssertionError("the last line of the precedence always decides")


def _off(reason: str) -> Ruling:
    return Ruling(Variant.OFF, reason)


def _dealt(assignment: Assignment, standing: Standing) -> Ruling:
    arm = Arm(assignment.arm) if assignment.arm else None
    variant = Variant.ON if arm == Arm.TREATMENT else Variant.OFF
    comparison = Comparison.EXCLUDED if standing.waived else Comparison(assignment.comparison)
    return Ruling(variant, assignment.reason, arm, comparison, assignment.bucket)


def _says(ruling: Ruling, standing: Standing) -> str:
    """The winning line in words: the rule, the missing observation or the changed facts where there are any."""
    if ruling.reason.startswith("gate:"):
        return standing.refusals[0].says
    details = {"not_observed": standing.unobserved, "facts_changed": ", ".join(standing.changed)}
    detail = details.get(ruling.reason, "")
    return f"{ruling.variant}: {ruling.reason}" + (f" ({detail})" if detail else "")
