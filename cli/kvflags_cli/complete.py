# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""Shell completion of the names of flags and deployments. A shell must never wait for the collector or see errors."""

from __future__ import annotations

__all__ = ["deployments", "flag_keys"]

# Longer than a collector nearby takes, shorter than what a person at the Tab key calls hanging.
_PATIENCE_S = 0.5


def flag_keys(incomplete: str) -> list[str]:
    """The flags whose key begins with what was typed; none when the collector does not answer in time."""
    return _asked("flags", "key", incomplete)


def deployments(incomplete: str) -> list[str]:
    """The deployments whose name begins with what was typed; none when the collector does not answer in time."""
    return _asked("deployments", "deployment", incomplete, prefix=incomplete)


def _asked(what: str, name: str, incomplete: str, **query: str) -> list[str]:
    from kvflags.errors import KvflagsError
    from kvflags_cli.client import Client
    from kvflags_cli.settings import connection

    try:
        with Client(connection(None), timeout=_PATIENCE_S) as client:
            names = [item[name] for item in client.get(what, **query)["items"]]
    except (KvflagsError, KeyError, TypeError):
        return []
    return [one for one in names if one and one.startswith(incomplete)]
