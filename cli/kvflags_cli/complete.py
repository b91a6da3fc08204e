# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""Shell completion of flag names, asked from the collector. A shell must never wait for it or see its errors."""

from __future__ import annotations

__all__ = ["flag_keys"]

# Longer than a collector nearby takes, shorter than what a person at the Tab key calls hanging.
_PATIENCE_S = 0.5


def flag_keys(incomplete: str) -> list[str]:
    """The flags whose key begins with what was typed; none when the collector does not answer in time."""
    from kvflags.errors import KvflagsError
    from kvflags_cli.client import Client
    from kvflags_cli.settings import connection

    try:
        with Client(connection(None), timeout=_PATIENCE_S) as client:
            keys = [flag["key"] for flag in client.get("flags")["items"]]
    except (KvflagsError, KeyError, TypeError):
        return []
    return [key for key in keys if key.startswith(incomplete)]
