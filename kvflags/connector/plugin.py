# SPDX-License-Identifier: Apache-2.0
"""The entry point `vllm.general_plugins`: installs the wrapper and the decision, in whichever process vLLM runs it.

vLLM calls it without try/except, several times, in every process, also for `--help`. So it imports nothing of vLLM,
does no I/O, and only leaves patches behind that wait for their modules.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from kvflags.connector.guard import guarded
from kvflags.imports import when_imported

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from kvflags.settings import Settings

__all__ = ["by_path", "register"]

_ARGUMENTS = "vllm.engine.arg_utils"
_FRONT_END = "vllm.v1.engine.async_llm"
_FACTORY = "vllm.distributed.kv_transfer.kv_connector.factory"
_CONNECTORS = ("NixlConnector", "NixlPullConnector", "NixlPushConnector")

# On what we put into vLLM, so that a second call finds it.
_MARK = "_kvflags"

_log = logging.getLogger("vllm.kvflags")


@guarded(None)
def register() -> None:
    """Never raises, and may be called any number of times. Without a collector, and not `local`, it changes nothing."""
    if _wanted(_settings()):
        when_imported(_ARGUMENTS, _patch_arguments)
        when_imported(_FACTORY, _patch_factory)
        when_imported(_FRONT_END, _patch_front_end)


@guarded(None)
def by_path(base: type) -> type | None:
    """The wrapper for who named `kvflags.connector` as the module path; None where the class is to stay vLLM's own."""
    return None if _settings().disabled else _wrapped(base)


def _settings() -> Settings:
    from kvflags.settings import Settings  # noqa: PLC0415 (this module is imported by every process of vLLM)

    return Settings.from_environ(os.environ)


def _wanted(settings: Settings) -> bool:
    return settings.destination is not None


def _patch_arguments(module: ModuleType) -> None:
    """The front end's configuration is complete when this returns: the place where the decision is taken, once."""
    create = module.EngineArgs.create_engine_config
    if hasattr(create, _MARK):
        return

    @functools.wraps(create)
    def create_engine_config(*args: object, **kwargs: object) -> VllmConfig:
        config = create(*args, **kwargs)
        _decide(config)
        return config

    setattr(create_engine_config, _MARK, True)
    module.EngineArgs.create_engine_config = create_engine_config


@guarded(None)
def _decide(vllm_config: VllmConfig) -> None:
    if getattr(vllm_config, "kv_transfer_config", None) is None:
        return
    settings = _settings()
    if not _wanted(settings):
        return
    from kvflags.connector.facts import static_facts  # noqa: PLC0415
    from kvflags.decision import carry, resolve  # noqa: PLC0415

    carry.put(vllm_config, resolve.resolve(settings, vllm_config, static_facts=static_facts))


def _patch_front_end(module: ModuleType) -> None:
    """Have the asynchronous front end call our stat logger too, unless the operator switched statistics off."""
    init = module.AsyncLLM.__init__
    if hasattr(init, _MARK):
        return
    signature = inspect.signature(init)

    @functools.wraps(init)
    def __init__(*args: object, **kwargs: object) -> None:  # noqa: N807 (it is one)
        bound = _with_stat_logger(signature, args, kwargs)
        if bound is None:
            init(*args, **kwargs)
        else:
            init(*bound.args, **bound.kwargs)

    setattr(__init__, _MARK, True)
    module.AsyncLLM.__init__ = __init__


@guarded(None)
def _with_stat_logger(
    signature: inspect.Signature, args: tuple[object, ...], kwargs: dict[str, object]
) -> inspect.BoundArguments | None:
    """The arguments with our stat logger among them; None where they are to stay as they are."""
    bound = signature.bind(*args, **kwargs)
    vllm_config: VllmConfig = bound.arguments["vllm_config"]
    if getattr(vllm_config, "kv_transfer_config", None) is None:
        return None
    from kvflags.connector.outcomes import stat_logger, wanted  # noqa: PLC0415 (vLLM is loaded by now)

    if not wanted(vllm_config):
        return None
    if not bound.arguments.get("log_stats", True):
        _log.info("kvflags: statistics are switched off (--disable-log-stats), so no outcomes are sent")
        return None
    from vllm.v1.metrics.loggers import AggregateStatLoggerBase  # noqa: PLC0415 (loaded by now)

    bound.arguments["stat_loggers"] = [
        *(bound.arguments.get("stat_loggers") or ()),
        stat_logger(AggregateStatLoggerBase),
    ]
    return bound


def _patch_factory(module: ModuleType) -> None:
    registry = module.KVConnectorFactory._registry  # register_connector refuses a name that it knows
    for name in _CONNECTORS:
        loader = registry.get(name)
        if loader is None or hasattr(loader, _MARK):
            continue
        if not _is_vllms(loader):
            _log.warning("kvflags: %s is already replaced by another plugin; kvflags stands aside", name)
            continue
        registry[name] = _wrapping(loader)


def _is_vllms(loader: Callable[[], type]) -> bool:
    """Whether it is the factory's own closure over a module of vLLM's. (Dynamo, for one, patches connectors too.)"""
    if not inspect.isfunction(loader) or loader.__module__ != _FACTORY:
        return False
    return str(inspect.getclosurevars(loader).nonlocals.get("module_path", "")).startswith("vllm.")


def _wrapping(loader: Callable[[], type]) -> Callable[[], type]:
    @functools.wraps(loader)
    def load() -> type:
        base = loader()
        return _wrapped(base) or base

    setattr(load, _MARK, True)
    return load


@guarded(None)
def _wrapped(base: type) -> type:
    from kvflags.connector.wrap import wrap  # noqa: PLC0415

    return wrap(base)
