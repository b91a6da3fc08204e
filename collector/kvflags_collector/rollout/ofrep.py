# SPDX-License-Identifier: Apache-2.0
"""A flag evaluated for anybody who asks by OFREP: what a deployment is told, without pinning anything. Reads only."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from kvflags.flags import Flag, Ruling, Variant
from kvflags_collector.rollout import explain, flags, pins, standing

__all__ = ["evaluate", "evaluate_all"]

# The reasons of OFREP's schema; everything else about a decision is in the metadata. Clients fail on other reasons.
_DISABLED = ("kill_switch", "phase_draft", "phase_aborted")
_SPLIT = ("assigned", "holdback", "released", "not_enrolled")
_MATCH = ("opt_in", "opt_out", "completed", "forced", "safe_mode", "already_running", "handed_out")


def evaluate_all(conn: Connection, deployment: str, generation: str | None, now: int) -> list[dict[str, Any]]:
    """Every unarchived flag for one deployment, by feature."""
    return [evaluate(conn, flag, deployment, generation, now) for flag in flags.by_feature(conn).values()]


def evaluate(conn: Connection, flag: Flag, deployment: str, generation: str | None, now: int) -> dict[str, Any]:
    """`{key, value, variant, reason, metadata}`: the pin of the generation, else what a new one would be told.

    Without a generation it is the newest that lives. A deployment that nobody heard of is off, reason UNKNOWN.
    """
    generation = generation or explain.newest(conn, flag.key, deployment, now)
    pin = pins.open_pin(conn, flag.key, deployment, generation) if generation else None
    told = pin or standing.rule(conn, flag, deployment, now)
    metadata: dict[str, Any] = {"version": str(flag.revision), "contextId": deployment, "reason": told.reason}
    known = {"arm": told.arm, "comparison": told.comparison, "generation": generation, "epoch": pin and pin.epoch}
    return {
        "key": flag.key,
        "value": told.variant == Variant.ON,
        "variant": str(told.variant),
        "reason": _reason(told),
        "metadata": metadata | {name: value for name, value in known.items() if value is not None},
    }


def _reason(told: Ruling | pins.Pin) -> str:
    for reasons, standard in ((_DISABLED, "DISABLED"), (_SPLIT, "SPLIT"), (_MATCH, "TARGETING_MATCH")):
        if told.reason in reasons:
            return standard
    return "STATIC" if told.reason == "default" or told.reason.startswith("gate:") else "UNKNOWN"
