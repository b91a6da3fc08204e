# SPDX-License-Identifier: Apache-2.0
"""What the collector answered to a registration, checked: from here on a decision has the shape that its type says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvflags.errors import Unavailable
from kvflags.features import FEATURES
from kvflags.flags import Arm, Comparison, Decision, PinState, Variant

if TYPE_CHECKING:
    from kvflags.decision.carry import Carried

__all__ = ["Answer", "adopted", "as_running", "decision_from", "read"]

# What a collector may ask for. Below 0.1 s engines would do little else; above an hour nobody would call them live.
_HEARTBEAT_S = (0.1, 3600.0)


@dataclass(frozen=True, slots=True)
class Answer:
    """The decision for the feature that we know (None: it has no flag), and the heartbeats' interval in seconds."""

    decision: Decision | None
    heartbeat_s: float


def read(document: Mapping[str, Any]) -> Answer:
    """Raises Unavailable when it is not what api.md says: whoever answered is no collector that we can follow."""
    try:
        decisions = [entry for entry in document["decisions"] if entry["feature"] in FEATURES]
        decision = decision_from(decisions[0]) if decisions else None
        interval = document.get("heartbeat_s", 30)
        if isinstance(interval, bool) or not isinstance(interval, int | float):
            raise ValueError("heartbeat_s is not a number")
    except (KeyError, TypeError, ValueError) as error:
        raise Unavailable(
            f"The collector's answer cannot be read: {error}", hint="Are collector and engine of one release?"
        ) from error
    low, high = _HEARTBEAT_S
    return Answer(decision, min(max(float(interval), low), high))


def decision_from(document: Any) -> Decision:  # noqa: ANN401 (JSON from the wire or the disk)
    """Raises ValueError unless every field has its type and each closed word is one of its set."""
    if not isinstance(document, Mapping):
        raise ValueError("not a decision")
    try:
        decision = Decision.from_json(document)
    except TypeError as error:
        raise ValueError(f"not a decision: {error}") from error
    wrong = [name for name, is_fine in _checks(decision) if not is_fine]
    if wrong:
        raise ValueError(f"not a decision: {', '.join(wrong)}")
    return decision


# Membership is asked of tuples: what came over the wire may be a list, which no set can be asked for.
def _checks(decision: Decision) -> list[tuple[str, bool]]:
    return [
        ("feature", isinstance(decision.feature, str)),
        ("flag", isinstance(decision.flag, str)),
        ("reason", isinstance(decision.reason, str)),
        ("variant", decision.variant in tuple(Variant)),
        ("arm", decision.arm is None or decision.arm in tuple(Arm)),
        ("comparison", decision.comparison in tuple(Comparison)),
        ("state", decision.state in tuple(PinState)),
        ("revision", type(decision.revision) is int),
        ("epoch", type(decision.epoch) is int),
        ("bucket", decision.bucket is None or type(decision.bucket) is int),
        ("signed", decision.signed is None or isinstance(decision.signed, str)),
    ]


def adopted(carried: Carried, heard: Decision) -> Decision:
    """The identity of an engine that runs under `carried` and heard its decision later: what runs is frozen."""
    if carried.local:
        return as_running(heard, carried.variant, carried.reason)
    return heard if heard.variant == carried.variant else as_running(heard, carried.variant, "runs_another_variant")


def as_running(decision: Decision, variant: str, reason: str) -> Decision:
    """The identity of an engine that runs `variant` whatever was decided: flag and epoch, outside the comparison."""
    return replace(decision, variant=variant, arm=None, comparison=Comparison.EXCLUDED, reason=reason, signed=None)
