# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402 - whatever vLLM imports, the plugin was there first, as in an engine
# ruff: noqa: PLC0415 - what only some releases have
"""One release of vLLM under our plugin: its own configuration, connector class, worker and NIXL agent; no engine.

Runs in a process of its own, with the release's Python files first on the path and `KVFLAGS_STRICT=1`: whatever we call
that is not there ends it. Prints what it found as the last line, JSON. None of vLLM's compiled modules is there.

    python probe.py MODEL
"""

import inspect
import json
import os
import pickle
import socket
import sys
import time
from contextlib import suppress

from kvflags import lab
from kvflags.connector import plugin

plugin.register()
lab.register()

import torch
from vllm.config import KVTransferConfig, set_current_vllm_config
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import nixl, supports_hma
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.parallel_state import init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import EngineArgs
from vllm.v1 import kv_cache_interface

from kvflags.connector import guard
from kvflags.decision import carry

LAYERS, HEADS, BLOCKS = 8, 4, 16
NAMES = [f"model.layers.{layer}.self_attn.attn" for layer in range(LAYERS)]


def configuration(model):
    transfer = KVTransferConfig(kv_connector="NixlConnector", kv_role="kv_consumer", kv_buffer_device="cpu")
    arguments = EngineArgs(
        model=model, skip_tokenizer_init=True, enforce_eager=True, max_model_len=256, dtype="float32", block_size=64,
        kv_transfer_config=transfer,
    )  # fmt: skip
    # Pickled, as on its way to the engine core and the workers.
    return pickle.loads(pickle.dumps(arguments.create_engine_config()))


def classes():
    """Each registered connector beside the class that it wraps."""
    found = {}
    for name in ("NixlConnector", "NixlPullConnector", "NixlPushConnector"):
        with suppress(ValueError):  # a release that has no such connector
            ours = KVConnectorFactory.get_connector_class_by_name(name)
            found[name] = ours, ours.__mro__[1]
    return found


def differences(ours, base, config):
    """What a caller could tell the two classes by."""
    told = {}
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        told[name] = getattr(ours, name) == getattr(base, name)
    for name, value in vars(ours).items():
        if inspect.isfunction(inspect.unwrap(getattr(value, "__func__", value))) and hasattr(base, name):
            told[f"signature of {name}"] = parameters(getattr(ours, name)) == parameters(getattr(base, name))
    told["supports_hma"] = supports_hma(ours) == supports_hma(base)
    told["stats"] = type(ours.build_kv_connector_stats()) is type(base.build_kv_connector_stats())
    for name in ("requires_piecewise_for_cudagraph", "supports_sleep_mode"):
        if hasattr(base, name):
            asked = {} if name == "requires_piecewise_for_cudagraph" else config.kv_transfer_config
            told[name] = answer(ours, name, asked) == answer(base, name, asked)
    return sorted(name for name, same in told.items() if not same)


def parameters(function):
    return [(one.name, one.kind) for one in inspect.signature(function).parameters.values()]


def answer(connector, name, asked):
    method = getattr(connector, name)
    return method(asked) if inspect.signature(method).parameters else method()


def distribute():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    init_distributed_environment(1, 0, address, 0, "gloo")
    initialize_model_parallel(1, 1)


def cache_config(tokens):
    spec = kv_cache_interface.FullAttentionSpec(
        block_size=tokens, num_kv_heads=HEADS, head_size=32, dtype=torch.float32
    )
    groups = [kv_cache_interface.KVCacheGroupSpec(NAMES, spec)]
    return spec, kv_cache_interface.KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups)


def resolved(config, spec):
    """What vLLM makes of the wish; None where there is nothing to resolve, to 0.28."""
    try:
        from vllm.v1.attention.backends.utils import resolve_kv_cache_layout
    except ImportError:
        return None
    names = [layout.name for layout in backend().supported_kv_cache_layouts()]
    return resolve_kv_cache_layout(config, [names], [spec]).name


def backend():
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    return CPUAttentionBackend


def register(connector, layout, tokens):
    """The caches as the model runner would allocate them in this layout."""
    if layout == "BHLNC":
        rows = torch.zeros(BLOCKS, HEADS, LAYERS, tokens, 64)
        connector.register_kv_caches({name: rows[:, :, layer] for layer, name in enumerate(NAMES)})
        return
    shape = backend().get_kv_cache_shape(BLOCKS, tokens, HEADS, 32)
    connector.register_kv_caches({name: torch.zeros(shape) for name in NAMES})


def failed(connector):
    """Ask for blocks of an engine that is not there, until the failure has reached the records."""
    metadata = nixl.NixlConnectorMetadata() if hasattr(nixl, "NixlConnectorMetadata") else _metadata()
    blocks = ([1, 2],)
    metadata.add_new_req_to_recv(
        "asked", blocks,
        {
            "remote_block_ids": blocks, "remote_engine_id": "gone", "remote_request_id": "held",
            "remote_host": "127.0.0.1", "remote_port": 1, "tp_size": 1, "remote_num_tokens": 128,
        },
    )  # fmt: skip
    connector.bind_connector_metadata(metadata)
    connector.start_load_kv(None)
    until = time.monotonic() + 30
    while not (ended := connector._kvflags._records.take(9)) and time.monotonic() < until:
        connector.get_finished(set())
        time.sleep(0.05)
    return [{"request": one.request, "kind": one.kind, "remote": one.remote_request, "blocks": one.blocks}
            for one in ended]  # fmt: skip


def _metadata():
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlConnectorMetadata

    return NixlConnectorMetadata()


def main():
    config = configuration(sys.argv[1])
    told = carry.get(config)
    found = {
        "release": told.registration["facts"]["vllm"],
        "runner": told.registration["facts"]["runner"],
        "variant": told.variant,
        "classes": {
            name: {"wraps": ours._kvflags_wraps is base, "differs": differences(ours, base, config)}
            for name, (ours, base) in classes().items()
        },
        "asked": KVConnectorFactory.get_connector_class(config.kv_transfer_config).get_required_kvcache_layout(config),
    }
    with set_current_vllm_config(config):
        distribute()
        tokens = config.cache_config.block_size
        spec, caches = cache_config(tokens)
        found["resolved"] = resolved(config, spec)
        connector = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, caches)
        # Nobody is there to send to, and what is to be read here must not be on its way.
        connector._kvflags._export = lambda *_: None
        register(connector, found["resolved"], tokens)
        found["labels"] = {**connector._kvflags._labels.resource, **connector._kvflags._labels.span}
        found["failed"] = failed(connector)
        connector.shutdown()
    found["guarded"] = guard.failures()
    sys.stdout.write(json.dumps(found, default=str))
    sys.stdout.flush()
    os._exit(0)  # what NIXL's and torch's threads do at the end is not asked


main()
