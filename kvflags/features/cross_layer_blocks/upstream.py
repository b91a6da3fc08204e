# SPDX-License-Identifier: Apache-2.0
"""The change to vLLM that makes whole rows the default of its NIXL connector, for what a report has proven.

A unified diff against vLLM 0.32's `get_required_kvcache_layout`; it was applied to no other release.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["patch"]

_FILE = "vllm/distributed/kv_transfer/kv_connector/v1/nixl/connector.py"
# The hunk's first line there, in 0.32; tools find it at other lines by its context.
_AT = 154
_BEFORE = (
    "            # as the layout should not matter in that case,",
    "            # which fallback to the default behavior.",
    "            return None",
)
_AFTER = (
    "        logger.info_once(",
    '            "NixlConnector setting KV cache layout to LBHNC for "',
    '            "better xfer performance."',
)
# What can be asked for when the layout is, by the fact that it states.
_ASKED = {
    "backend": "backend == {}",
    "block_size": "vllm_config.cache_config.block_size == {}",
    "kv_heads_per_rank": "heads == {}",
}


def patch(where: Iterable[Mapping[str, Any]], reproduce: str) -> str:
    """`where`: facts of each stratum that is proven, as in a report's predicate; `reproduce`: the report's command.

    Applies with `git apply` or `patch -p1`. The text before the diff, which both skip, says what the diff cannot ask.
    """
    proven = [dict(one) for one in where]
    added = list(_added(proven, reproduce))
    lines = (
        *_preface(proven),
        f"--- a/{_FILE}",
        f"+++ b/{_FILE}",
        f"@@ -{_AT},{len(_BEFORE) + len(_AFTER)} +{_AT},{len(_BEFORE) + len(added) + len(_AFTER)} @@",
        *(f" {line}" for line in _BEFORE),
        *(f"+{line}" for line in added),
        *(f" {line}" for line in _AFTER),
    )
    return "\n".join(lines) + "\n"


def _preface(proven: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield "Ask for whole rows (BHLNC) by default, where a field report has proven them."
    yield ""
    for one in proven:
        yield f"Proven: {', '.join(f'{name} {value!r}' for name, value in sorted(one.items()))}"
    yield ""
    yield "Not asked by this change, since it is not known when the layout is: GPU, transport, and the layout of the"
    yield "other side. Where the backend is selected automatically it is not known either, and the default stays."
    yield ""


def _added(proven: Iterable[Mapping[str, Any]], reproduce: str) -> Iterator[str]:
    yield f"        # {reproduce}"
    yield "        parallel = vllm_config.parallel_config"
    yield "        heads = vllm_config.model_config.get_num_kv_heads(parallel)"
    yield "        chosen = vllm_config.attention_config.backend"
    yield "        backend = chosen.name if chosen else None"
    yield "        alone = vllm_config.kv_transfer_config.kv_connector == 'NixlConnector'"
    yield "        whole = parallel.pipeline_parallel_size * parallel.decode_context_parallel_size == 1"
    yield "        if alone and whole and ("
    for number, condition in enumerate(dict.fromkeys(map(_condition, proven))):
        yield f"            {'or ' if number else ''}({condition})"
    yield "        ):"
    yield '            return "BHLNC"'


def _condition(one: Mapping[str, Any]) -> str:
    # Values come from engines: as literals they are data whatever they hold.
    asked = [words.format(repr(one[name])) for name, words in _ASKED.items() if name in one]
    return " and ".join(asked) or "False"
