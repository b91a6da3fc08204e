# SPDX-License-Identifier: Apache-2.0
"""Which layout to ask for: the one place where a decision becomes something that vLLM does.

A pure function of the carried decision, the configuration and the environment, so that the engine core (which asks) and
the worker (which reports) come to the same answer without talking to each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvflags.features import FEATURES
from kvflags.flags import Facts, Variant

if TYPE_CHECKING:
    from kvflags.decision.carry import Carried

__all__ = ["OVERRIDE", "requested"]

# vLLM's own setting. It outranks every connector there, so it does here.
OVERRIDE = "VLLM_KV_CACHE_LAYOUT"


def requested(carried: Carried | None, environ: Mapping[str, str]) -> str | None:
    """The layout to ask for; None where the plain connector's own wish stands, which is every case but `on`.

    Nested in another connector none is asked for either: were it not that of its siblings, the engine would not start.
    """
    decision = carried.decision if carried else None
    if carried is None or decision is None or decision.variant != Variant.ON or environ.get(OVERRIDE):
        return None
    facts = Facts.from_json(carried.registration.get("facts") or {})
    feature = FEATURES.get(decision.feature)
    return feature.layout(facts) if feature and facts.nested_in is None else None
