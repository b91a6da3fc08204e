# SPDX-License-Identifier: Apache-2.0
"""The line in the engine's log: what is on, why, what is sent where, and how to stop it. Problems follow, one each."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kvflags.decision.carry import Carried
from kvflags.features import CROSS_LAYER_BLOCKS
from kvflags.flags import Decision

__all__ = ["announce", "sentence"]


def announce(carried: Carried, problems: Iterable[str]) -> None:
    """Through vLLM's own logger, so that it looks and is filtered like the lines around it."""
    logger = logging.getLogger("vllm.kvflags")
    logger.info("%s", sentence(carried))
    for problem in problems:
        logger.warning("kvflags: %s", problem)


def sentence(carried: Carried) -> str:
    """One line, also where a setting holds something odd."""
    where = f"{carried.deployment or 'an unidentified deployment'}, generation {carried.generation} ({carried.role})"
    why = f"{carried.reason}, {carried.source}{_standing(carried.decision)}"
    return (
        f"kvflags: {CROSS_LAYER_BLOCKS.name} is {carried.variant} in {where}: {why}. {_sends(carried.url)}. "
        "KVFLAGS_DISABLED=1 switches kvflags off"
    )


def _sends(url: str | None) -> str:
    if url is None:
        return "Nothing is sent (KVFLAGS_COLLECTOR_URL is not set)"
    if url.startswith("file:"):
        return f"Layout and transfer figures, never prompts or tokens, stay here in {url}; nothing is sent"
    return f"Layout and transfer figures, never prompts or tokens, go to {url}"


def _standing(decision: Decision | None) -> str:
    if decision is None or not decision.flag:
        return ""
    arm = f", arm {decision.arm}" if decision.arm else ""
    return f"; flag {decision.flag}, epoch {decision.epoch}{arm}, {decision.state}"
