# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""The commands, one module each. A command parses, asks the collector, shows; `serve` and `db` import the service."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvflags_cli.client import Client

__all__ = ["connect"]


def connect(option: str | None) -> Client:
    """A client of the collector named by --collector or the environment. Imported late: `--help` needs no HTTP."""
    from kvflags_cli.client import Client
    from kvflags_cli.settings import connection

    return Client(connection(option))
