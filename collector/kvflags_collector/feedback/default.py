# SPDX-License-Identifier: Apache-2.0
"""What making a feature the default would need: the predicate, where it is proven, and the way back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kvflags.features import FEATURES
from kvflags.flags import Facts, Flag, RuleClass
from kvflags_collector.feedback.document import Predicate
from kvflags_collector.judge.generations import Generation

__all__ = ["predicate", "way_back"]

# Of the facts that make a stratum, with how each reads in a sentence.
_WORDS = {
    "backend": "backend {}",
    "gpu": "GPU {}",
    "model_class": "model class {}",
    "vllm": "vLLM {}",
    "kv_heads_per_rank": "{} KV heads a rank",
    "block_size": "block size {}",
    "transport": "transport {}",
}


def predicate(flag: Flag, scope: Sequence[str], found: Iterable[Generation]) -> Predicate | None:
    """For the strata of a scope; None without any, since nothing is proven then."""
    proven = _proven(scope, found)
    if not proven:
        return None
    feature = FEATURES[flag.feature]
    layouts = sorted({layout for facts in proven if (layout := feature.layout(facts))})
    where = [_stated(facts) for facts in proven]
    kept_out = (rule for rule in feature.rules if rule.rule_class is not RuleClass.UNSUPPORTED)
    # Up to 0.28 it is a switch and no layout.
    asked = " or ".join(layouts) or flag.feature.replace("_", " ")
    return {
        "layout": asked,
        "where": where,
        "unless": [{"code": rule.code, "says": rule.says} for rule in kept_out],
        "says": f"Ask for {asked} where {'; or '.join(map(_in_words, where))}; and none of the rules below is met.",
    }


def way_back(flag: Flag) -> list[str]:
    """From the whole rollout to a single engine, each with its command."""
    return [
        f"The rollout: kvflags rollout abort {flag.key} --reason TEXT, then kvflags plan restarts {flag.key}.",
        f"One deployment: kvflags deployments opt-out DEPLOYMENT --flag {flag.key} --reason TEXT, then replace it.",
        "One engine, whatever the collector says: KVFLAGS_DISABLED=1 on prefill and decode, restart both.",
        *FEATURES[flag.feature].way_back,
    ]


def _proven(scope: Collection[str], found: Iterable[Generation]) -> list[Facts]:
    """One engine's facts for each stratum of the scope."""
    seen: dict[str, Facts] = {}
    for facts in _facts(found):
        if facts.stratum in scope:
            seen.setdefault(facts.stratum, facts)
    return [seen[name] for name in sorted(seen)]


def _facts(found: Iterable[Generation]) -> Iterator[Facts]:
    for one in found:
        if one.latest and one.included:
            yield from (Facts.from_json(engine["facts"]) for engine in one.engines)


def _stated(facts: Facts) -> dict[str, Any]:
    """What was the same throughout the stratum, and nothing else: of the release, its minor."""
    stated = {name: getattr(facts, name) for name in _WORDS}
    stated["vllm"] = ".".join(facts.vllm.split(".")[:2]) if facts.vllm else None
    return {name: value for name, value in stated.items() if value is not None}


def _in_words(stated: Mapping[str, Any]) -> str:
    return ", ".join(_WORDS[name].format(value) for name, value in stated.items())
