# SPDX-License-Identifier: Apache-2.0
"""Ties kvflags to vLLM: the plugin that installs the wrapper, the wrapper, and what observes NIXL beneath it.

Two ways in. The plugin (`plugin.register`) needs nothing but the installed package and a collector's address. The
module path is explicit: `"kv_connector": "NixlConnector", "kv_connector_module_path": "kvflags.connector"`. It takes
its decision from the plugin: where that did not run it observes only.
"""

from __future__ import annotations

__all__ = ["NixlConnector", "NixlPullConnector", "NixlPushConnector"]


def __getattr__(name: str) -> type:
    """The wrapped connector classes, made when vLLM asks: importing this package imports nothing of vLLM."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vllm.distributed.kv_transfer.kv_connector.v1 import nixl  # noqa: PLC0415

    from kvflags.connector.plugin import by_path  # noqa: PLC0415

    base: type = getattr(nixl, name)
    return by_path(base) or base
