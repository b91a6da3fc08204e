# SPDX-License-Identifier: Apache-2.0
"""What is known of an engine, and when: from its configuration in the front end, from its worker once caches exist."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, TypeVar

from kvflags.connector.guard import guarded
from kvflags.flags import Facts

if TYPE_CHECKING:
    from vllm.config import ModelConfig, VllmConfig

    from kvflags.connector.host import Worker
    from kvflags.settings import Settings

__all__ = ["static_facts", "worker_facts"]

_T = TypeVar("_T")

# The distribution is split by CUDA release; all carry the same version.
_NIXL = ("nixl", "nixl-cu13", "nixl-cu12", "nixl-rocm")


def static_facts(vllm_config: VllmConfig, settings: Settings) -> Facts:
    """What the configuration says, in the front end. Whatever cannot be read is None, and a gate that needs it not met.

    The attention backend is None unless the operator named one: it is chosen later, in the worker.
    """
    parallel, cache = vllm_config.parallel_config, vllm_config.cache_config
    connector, nested_in = _connector(vllm_config)
    return Facts(
        vllm=_quietly(_vllm),
        nixl=next((found for name in _NIXL if (found := _version(name))), None),
        model_class=_quietly(lambda: _model_class(vllm_config.model_config)),
        architecture=_quietly(lambda: str(vllm_config.model_config.architecture)),
        backend=_quietly(lambda: _name(vllm_config.attention_config.backend)),
        block_size=cache.block_size if getattr(cache, "user_specified_block_size", False) else None,
        kv_heads_per_rank=_quietly(lambda: int(vllm_config.model_config.get_num_kv_heads(parallel))),
        tp=parallel.tensor_parallel_size,
        pp=parallel.pipeline_parallel_size,
        dp=parallel.data_parallel_size,
        dcp=getattr(parallel, "decode_context_parallel_size", 1),
        kv_cache_dtype=str(cache.cache_dtype),
        connector=connector,
        nested_in=nested_in,
        gpu=_quietly(_gpu),
        runner=_quietly(lambda: "v2" if vllm_config.use_v2_model_runner else "v1"),
        isolation=settings.isolation,
        lab=settings.lab,
    )


def worker_facts(connector_worker: Worker) -> dict[str, str | int]:
    """What only a worker knows, after its caches are registered: backend, block size in tokens, transport."""
    # The worker counts in the kernel's blocks; the configuration, and so the gate, in the scheduler's.
    kernel_blocks = getattr(connector_worker, "_physical_blocks_per_logical_kv_block", 1)
    return {
        "backend": str(connector_worker.backend_name),
        "block_size": int(connector_worker.block_size) * int(kernel_blocks),
        "transport": "+".join(connector_worker.nixl_backends),
    }


def _vllm() -> str:
    # Not the distribution's version: on CPU that has another name.
    from vllm import __version__  # noqa: PLC0415 (see _gpu)

    return str(__version__)


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _connector(vllm_config: VllmConfig) -> tuple[str | None, str | None]:
    """The NIXL connector's name, and the connector that it is nested in."""
    transfer = vllm_config.kv_transfer_config
    name: str | None = transfer.kv_connector
    children = (transfer.kv_connector_extra_config or {}).get("connectors") or ()
    nested = (str(child.get("kv_connector")) for child in children)
    inner = next((child for child in nested if child.startswith("Nixl")), None)
    return (inner, name) if inner else (name, None)


def _model_class(model: ModelConfig) -> str:
    text = model.hf_text_config
    if model.use_mla:
        # DeepSeek V3.2 and its kin: an index picks the tokens that are attended to.
        return "mla_sparse" if hasattr(text, "index_topk") else "mla"
    # A layer type of its own (a sliding window, a recurrent state) has a KV cache of its own kind.
    kinds = set(getattr(text, "layer_types", None) or ())
    return "hybrid" if model.is_hybrid or model.is_encoder_decoder or len(kinds) > 1 else "gqa"


def _name(backend: object) -> str | None:
    return None if backend is None else str(getattr(backend, "name", backend))


def _gpu() -> str | None:
    from vllm.platforms import current_platform  # noqa: PLC0415 (vLLM is loaded by now; this module must not load it)

    return None if current_platform.is_cpu() else str(current_platform.get_device_name())


def _quietly(read: Callable[[], _T]) -> _T | None:
    return guarded(None)(read)()
