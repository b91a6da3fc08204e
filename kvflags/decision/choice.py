# SPDX-License-Identifier: Apache-2.0
"""The order in which an engine believes: the registered pin, what was handed out, what was last heard, off.

Over all of them stand the operator's own setting, and a rule of class UNSAFE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvflags.decision import registration
from kvflags.decision.answer import Answer, as_running
from kvflags.decision.carry import Source
from kvflags.features import CROSS_LAYER_BLOCKS
from kvflags.flags import Decision, Variant
from kvflags.settings import Settings, Telemetry

__all__ = ["Choice", "chosen", "overruled"]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was believed, whose word it is, and why it says so. No decision: off, and no flag on the spans."""

    source: Source
    reason: str
    decision: Decision | None = None


def chosen(
    settings: Settings, heard: Answer | None, handed: Decision | None, remembered: Decision | None, *, registers: bool
) -> Choice:
    """The first that there is: `heard` from the collector, `handed` out with the deployment, `remembered` on disk."""
    if heard:
        return Choice(Source.REGISTERED, *_answered(settings, heard.decision))
    if handed:
        return Choice(Source.HANDED_OUT, handed.reason, handed)
    if remembered:
        return Choice(Source.LAST_HEARD, remembered.reason, remembered)
    if not settings.nixl_telemetry:
        return Choice(Source.TELEMETRY_DISABLED, "nixl_telemetry_disabled")
    return Choice(Source.FALLBACK, _unheard(settings, registers=registers))


def _unheard(settings: Settings, *, registers: bool) -> str:
    if not registers:
        return "not_a_front_end"
    if settings.telemetry == Telemetry.LOCAL:
        return "telemetry_local"
    return "unreachable" if settings.collector_url else "no_collector"


def _answered(settings: Settings, decision: Decision | None) -> tuple[str, Decision | None]:
    if decision:
        return decision.reason, decision
    return "no_flag" if settings.deployment else "unidentified", None


def overruled(choice: Choice, local: Mapping[str, str] | None, is_unsafe: bool) -> Choice:
    """The two that stand over any decision: the operator's own setting, and a rule of class UNSAFE."""
    if local:
        reason = f"local:{local['source']}"
        choice = Choice(Source.LOCAL, reason, as_running(choice.decision or _unflagged(), local["variant"], reason))
        if local["source"] == registration.LAYOUT_SETTING:
            # vLLM obeys its own variable whatever we say.
            return choice
    if is_unsafe and choice.decision and choice.decision.variant == Variant.ON:
        reason = "unsafe_under_pin"
        return replace(choice, reason=reason, decision=as_running(choice.decision, Variant.OFF, reason))
    return choice


def _unflagged() -> Decision:
    return Decision(feature=CROSS_LAYER_BLOCKS.name, flag="", variant=Variant.OFF, reason="")
