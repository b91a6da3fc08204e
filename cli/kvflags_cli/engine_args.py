# SPDX-License-Identifier: Apache-2.0
"""What an engine's command line says of it, as far as the gate asks: for an answer without starting it.

What is not said is not known, and what is not known is a no. vLLM is not needed; a model is read where it lies in a
local directory.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from kvflags.errors import UsageError
from kvflags.flags import Facts

__all__ = ["facts_of"]

_HINT = 'such as --engine-args "--model /models/llama -tp 2 --kv-transfer-config {...}"'
_ASSUMABLE = tuple(field.name for field in fields(Facts))


def facts_of(engine_args: str, release: str, assumptions: Iterable[str] = ()) -> Facts:
    """The facts of an engine started with these arguments; `assumptions` (NAME=VALUE) add what arguments cannot say.

    Raises:
        UsageError: an argument or an assumption cannot be read.
    """
    given = _parse(engine_args)
    transfer = _json("--kv-transfer-config", given.kv_transfer_config)
    attention = _json("--attention-config", given.attention_config)
    connector, nested_in = _connector(transfer)
    backend = given.attention_backend or attention.get("backend")
    known = {
        "vllm": release,
        "backend": str(backend).upper() if backend else None,
        "block_size": given.block_size,
        "tp": given.tensor_parallel_size,
        "pp": given.pipeline_parallel_size,
        "dp": given.data_parallel_size,
        "dcp": given.decode_context_parallel_size,
        "kv_cache_dtype": given.kv_cache_dtype,
        "connector": connector,
        "nested_in": nested_in,
        **_model(given.model or given.model_tag, given.tensor_parallel_size),
        **_assumed(assumptions),
    }
    return Facts.from_json(known)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"--engine-args: {message}", hint=_HINT)


def _parse(engine_args: str) -> argparse.Namespace:
    # Abbreviations are read as vLLM reads them.
    parser = _Parser(add_help=False)
    parser.add_argument("--model")
    for short, name in (("-tp", "tensor"), ("-pp", "pipeline"), ("-dp", "data"), ("-dcp", "decode-context")):
        parser.add_argument(short, f"--{name}-parallel-size", type=int, default=1)
    parser.add_argument("--attention-backend")
    parser.add_argument("-ac", "--attention-config")
    parser.add_argument("--block-size", type=int)
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--kv-transfer-config")
    parser.add_argument("--config")
    given, rest = parser.parse_known_args([_dashed(word) for word in _words(engine_args)])
    if given.config:
        parser.error("what stands in a --config file is not read")
    if given.tensor_parallel_size < 1:
        parser.error("a tensor-parallel size is 1 or more")
    # `vllm serve MODEL`: the model is the first word, where it is one.
    words = [word for word in _before_options(rest) if word not in {"vllm", "serve"}]
    given.model_tag = words[0] if words else None
    return given


def _words(engine_args: str) -> list[str]:
    try:
        return shlex.split(engine_args)
    except ValueError as error:
        raise UsageError(f"--engine-args: {error}", hint=_HINT) from None


def _dashed(word: str) -> str:
    """vLLM takes --block_size for --block-size."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _before_options(words: list[str]) -> list[str]:
    first = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    return words[:first]


def _json(option: str, text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--engine-args: {option} is not JSON: {error}", hint=_HINT) from None
    if not isinstance(document, dict):
        raise UsageError(f"--engine-args: {option} is not a JSON object", hint=_HINT)
    return document


def _connector(transfer: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The NIXL connector's name, and the connector that it is nested in, as an engine reports them."""
    name = transfer.get("kv_connector")
    children = (transfer.get("kv_connector_extra_config") or {}).get("connectors") or ()
    inner = next((child["kv_connector"] for child in children if _is_nixl(child)), None)
    return (inner, name) if inner else (name, None)


def _is_nixl(child: Any) -> bool:  # noqa: ANN401 (JSON)
    return isinstance(child, dict) and str(child.get("kv_connector")).startswith("Nixl")


def _model(model: str | None, tensor_parallel: int) -> dict[str, Any]:
    """What the model's own configuration says; nothing where the model lies elsewhere."""
    path = Path(model) / "config.json" if model else None
    if path is None or not path.is_file():
        return {}
    config = _json(str(path), path.read_text())
    text = config.get("text_config") or config
    heads = text.get("num_key_value_heads") or text.get("num_attention_heads")
    return {
        "architecture": next(iter(config.get("architectures") or ()), None),
        "model_class": _model_class(config, text),
        "kv_heads_per_rank": max(1, int(heads) // tensor_parallel) if heads else None,
    }


def _model_class(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    """As the engine tells them apart, by what the configuration has."""
    if text.get("kv_lora_rank"):
        return "mla_sparse" if "index_topk" in text else "mla"
    kinds = set(text.get("layer_types") or ())
    recurrent = any(name.startswith(("mamba", "ssm_", "linear_attention")) for name in text)
    return "hybrid" if len(kinds) > 1 or recurrent or config.get("is_encoder_decoder") else "gqa"


def _assumed(assumptions: Iterable[str]) -> dict[str, Any]:
    assumed: dict[str, Any] = {}
    for one in assumptions:
        name, equals, value = one.partition("=")
        if not (equals and value) or name not in _ASSUMABLE:
            raise UsageError(f"--assume: not a fact: {one!r}", hint=f"NAME=VALUE with {', '.join(_ASSUMABLE)}")
        assumed[name] = int(value) if value.isdecimal() else value
    return assumed
