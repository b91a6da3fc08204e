# SPDX-License-Identifier: Apache-2.0
"""The body of a registration, as api.md has it: who this engine is, what is known of it, what it brings along."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvflags._version import __version__
from kvflags.features import CROSS_LAYER_BLOCKS, FEATURES
from kvflags.flags import Facts, Refusal, RuleClass, Variant
from kvflags.settings import Settings, problem_code

__all__ = ["LAYOUT_SETTING", "body", "codes", "local", "unsafe"]

LAYOUT_SETTING = "VLLM_KV_CACHE_LAYOUT"


def body(
    settings: Settings,
    facts: Facts,
    *,
    registration_id: str,
    role: str,
    deaths: int,
    presented: Any,  # noqa: ANN401 (a token or a decision's JSON)
    problems: Iterable[str],
) -> dict[str, Any]:
    """Plain JSON. `running` is None: a front end registers before anything runs."""
    refused = unsafe(facts)
    return {
        "registration_id": registration_id,
        "deployment": settings.deployment,
        "generation": settings.generation,
        "role": role,
        "features": list(FEATURES),
        "kvflags": __version__,
        "deaths": deaths,
        "running": None,
        "local": local(settings, facts),
        "facts": facts.to_json(),
        "presented": presented,
        "problems": codes(problems),
        # Said before the answer is known, since it holds for every `on`: the ledger condemns a pin that is one.
        "refused": "unsafe_under_pin" if refused else None,
        "refused_code": refused.code if refused else None,
    }


def local(settings: Settings, facts: Facts) -> dict[str, str] | None:
    """The operator's own explicit setting, which wins over all. vLLM obeys its own variable, so ours comes second."""
    if settings.kv_cache_layout:
        on = settings.kv_cache_layout == CROSS_LAYER_BLOCKS.layout(facts)
        return {"source": LAYOUT_SETTING, "variant": str(Variant.ON if on else Variant.OFF)}
    return {"source": "KVFLAGS_FORCE", "variant": settings.force} if settings.force else None


def unsafe(facts: Facts) -> Refusal | None:
    """The rule that makes `on` crash or corrupt here, whoever asks for it; the first, if there are several."""
    met = CROSS_LAYER_BLOCKS.refusals(facts)
    return next((refusal for refusal in met if refusal.rule_class == RuleClass.UNSAFE), None)


def codes(problems: Iterable[str]) -> list[str]:
    """Each code once, in the order met: what is sent of the problems."""
    return list(dict.fromkeys(problem_code(problem) for problem in problems))
