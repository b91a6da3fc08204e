# SPDX-License-Identifier: Apache-2.0
"""Where a flag may run: the feature's own rules over what a deployment is known to be, and the flag's besides."""

from __future__ import annotations

from kvflags.features import FEATURES
from kvflags.flags import Flag, Refusal, RuleClass, in_range
from kvflags_collector.rollout import observe
from kvflags_collector.rollout.declared import Declaration
from kvflags_collector.rollout.observe import Observed

__all__ = ["refusals"]


def refusals(flag: Flag, seen: Observed, stated: Declaration) -> tuple[Refusal, ...]:
    """Every reason why the deployment may not be treated under this flag; an unknown fact is a gate not met."""
    own = (*_labels(flag, stated), *_release(flag, seen), *_rolled_back(flag, seen))
    return (*observe.disqualified(FEATURES[flag.feature], seen), *own)


def _labels(flag: Flag, stated: Declaration) -> tuple[Refusal, ...]:
    missing = [f"{name}={value}" for name, value in flag.labels.items() if stated.labels.get(name) != value]
    if not missing:
        return ()
    says = f"It is not declared with the flag's label {', '.join(missing)}"
    return (Refusal("labels", RuleClass.UNSUPPORTED, says),)


def _release(flag: Flag, seen: Observed) -> tuple[Refusal, ...]:
    outside = {
        facts.vllm or "unknown" for each in seen.values() for facts in each if not in_range(facts.vllm, flag.vllm)
    }
    if not outside:
        return ()
    says = f"vLLM {', '.join(sorted(outside))} is not in the flag's range {flag.vllm}"
    return (Refusal("vllm_range", RuleClass.UNSUPPORTED, says),)


def _rolled_back(flag: Flag, seen: Observed) -> tuple[Refusal, ...]:
    off = {facts.stratum for each in seen.values() for facts in each} & set(flag.rolled_back)
    if not off:
        return ()
    says = f"A guardrail rolled {'; '.join(sorted(off))} back; `kvflags rollout undo {flag.key}` takes that back"
    return (Refusal("rolled_back", RuleClass.UNSUPPORTED, says),)
